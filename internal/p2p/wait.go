package p2p

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/poll"
)

// Waiters counts the goroutines that wait for an operation in the background. A nil Waiters belongs
// to a call that blocks its goroutine.
type Waiters struct {
	n       atomic.Int32
	watched atomic.Bool

	// Of the messages that are followed: the ranks that they wait for. Set before the first goroutine enters.
	messages *Messages
	peers    []int
}

// follow adds ranks that the goroutines of w wait for.
func (w *Waiters) follow(m *Messages, peers []int) {
	if w.messages == nil {
		w.messages, w.peers = m, peers
		return
	}
	w.peers = append(slices.Clip(w.peers), peers...)
}

// Await blocks until ended is closed. Meanwhile it may poll the links of the messages that are followed.
func (w *Waiters) Await(ended <-chan struct{}) {
	w.Enter()
	defer w.Leave()
	if w.messages == nil {
		<-ended
		return
	}
	w.messages.cfg.Poller.Wait(context.Background(), poll.Channel(ended), w.peers)
}

// Enter counts a goroutine in.
func (w *Waiters) Enter() { w.n.Add(1) }

// Leave counts a goroutine out.
func (w *Waiters) Leave() { w.n.Add(-1) }

// Watch says that the program has a channel that shows the end of the operation. It may wait for
// that, or look at it from time to time.
func (w *Waiters) Watch() { w.watched.Store(true) }

// IsWatched reports whether a goroutine waits, or may wait.
func (w *Waiters) IsWatched() bool { return w.Any() || w.watched.Load() }

// Any reports whether a goroutine waits.
func (w *Waiters) Any() bool { return w == nil || w.n.Load() > 0 }

// A Wait is a send, receive or probe in progress that cannot end without a call of the other rank. A
// goroutine waits for it, or may wait.
type Wait struct {
	Number uint64 // of the call, in the order of the calls
	Kind   uint8  // Sent, Got or Probed
	Type   uint8  // kernel.Type of the elements; 0 for a probe
	Peer   int    // the other rank, or Any
	Tag    int64  // or Any
	Bytes  int    // of a send; otherwise 0
	// Waiters are the goroutines that wait for the operation; nil if it blocks its own.
	Waiters *Waiters
	// Idle says that no goroutine waits for the operation. One may wait for the channel of
	// [Waiters.Watch].
	Idle bool
}

// Waits calls f for each Wait, in no particular order. It returns the number of calls that have
// begun, and whether a goroutine waits for a payload in transfer, or until a deadline of its own. f must
// not call methods of m.
func (m *Messages) Waits(f func(w Wait)) (begun uint64, moving bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.sends {
		switch {
		case !s.waiters.IsWatched():
		case s.transfer.Grant != 0:
			moving = moving || s.waiters.Any()
		default:
			f(Wait{Waiters: s.waiters, Idle: !s.waiters.Any(), Number: s.number, Kind: Sent, Type: s.typ, Peer: s.rank, Tag: s.tag, Bytes: s.size})
		}
	}
	for _, r := range m.receiving {
		if r.prefetch != nil {
			r = r.prefetch.taker
		}
		moving = moving || r != nil && r.waiters.Any()
	}
	m.matcher.EachReceive(func(r *Receive) {
		if r.waiters.IsWatched() {
			f(Wait{Waiters: r.waiters, Idle: !r.waiters.Any(), Number: r.number, Kind: Got, Type: r.typ, Peer: r.source, Tag: r.tag})
		}
	})
	for _, p := range m.probes {
		f(Wait{Number: p.number, Kind: Probed, Peer: p.source, Tag: p.tag})
	}
	return m.begun, moving || m.cfg.Poller.Limited()
}

// IsWaiting reports whether a send, receive or probe has not ended.
func (m *Messages) IsWaiting() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sends)+len(m.receiving)+len(m.probes) > 0 || m.matcher.Receives() > 0
}

// Expire ends the receive or probe with a number with err, if it still waits for a message. For a send
// that still waits for a grant it returns a function for [Owner.CancelIf].
func (m *Messages) Expire(number uint64, err error) (cancel func() bool) {
	m.update(func(fx *Effects) { cancel = m.expireLocked(fx, number, err) })
	return cancel
}

func (m *Messages) expireLocked(fx *Effects, number uint64, err error) (cancel func() bool) {
	for _, s := range m.sends {
		if s.number == number && s.transfer.Grant == 0 {
			return s.cancel
		}
	}
	m.endProbesLocked(fx, func(p *probe) bool {
		if p.number == number {
			p.err = err
		}
		return p.number == number
	})
	var expired *Receive
	m.matcher.EachReceive(func(r *Receive) {
		if r.number == number {
			expired = r
		}
	})
	if expired != nil && m.matcher.Remove(expired.source, expired.tag, expired) {
		m.endReceiveLocked(fx, expired, err)
	}
	return nil
}
