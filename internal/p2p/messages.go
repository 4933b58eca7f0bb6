// Package p2p sends and receives the point-to-point messages of a communicator. It keeps
// messages that arrive before a receive asks for them. Package match selects the receive
// that takes a message.
package p2p

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p/match"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/recorder"
)

// Any is the source or the tag of a receive that takes every message.
const Any = match.Any

// An Owner is the communicator that Messages belong to. Messages calls it without
// locks.
type Owner interface {
	// CancelIf ends the communicator because the context of a call has ended with
	// cause, unless the communicator has ended already or cancel returns false. If
	// cancel returns true, [Messages.Fail] must follow before any [Messages.Leave]:
	// only Fail ends the call.
	CancelIf(cancel func() bool, cause error)
	// Go calls f on a goroutine of its own, or immediately if the communicator has ended.
	Go(f func())
	// Spawn calls f on a goroutine that the owner waits for.
	Spawn(f func())
}

// A Clock returns the times at which messages begin and end.
type Clock interface {
	Stamp() int64
	StampEnd(begun int64) int64
}

// Config configures Messages.
type Config struct {
	Comm     uint64 // the number of the communicator
	EagerMax int    // longer payloads, in bytes, need a grant
	Owner    Owner
	Poller   *poll.Poller
	Clock    Clock
}

// Messages are the messages of one communicator: sends and receives in progress, and
// messages that have arrived and that no receive has taken yet.
//
// Frames that arrive before Open are kept. Each transition runs under the lock and returns
// effects, which Perform carries out without it.
type Messages struct {
	cfg       Config
	received  atomic.Pointer[func()] // called when a message arrives
	receives  sync.Pool              // of Receives for reuse
	releasing sync.WaitGroup         // failed sends and receives that still use their buffers

	mu        sync.Mutex
	opened    bool
	links     []*link.Link
	ranks     []int       // all ranks
	rankOf    map[int]int // by the number of the peer
	err       error       // why no call may begin
	left      map[int]error
	lastLeft  error // of the rank that left last
	matcher   match.Matcher[*Receive, arrival]
	unopened  []arrival               // arrived before Open
	refused   map[*link.Link]struct{} // see Refuse
	probes    []*probe
	matched   map[*Matched]struct{} // not received yet
	receiving []*Receive            // with a payload in transfer; see Receive.index
	sends     map[uint64]*Send      // that wait for a grant, or have one
	lastSend  uint64
	recording bool
	past      recorder.Ring[Record]
}

// New returns the messages of a communicator.
func New(cfg Config) *Messages {
	return &Messages{cfg: cfg, left: make(map[int]error), sends: make(map[uint64]*Send)}
}

// Open sets the link to each rank, and the rank of each peer. It drops messages that have
// arrived from peers without a rank.
func (m *Messages) Open(links []*link.Link, rankOf map[int]int) {
	var fx Effects
	m.mu.Lock()
	m.opened, m.links, m.rankOf = true, links, rankOf
	for rank := range links {
		m.ranks = append(m.ranks, rank)
	}
	early := m.unopened
	m.unopened = nil
	for i := range early {
		a := &early[i]
		if rank, ok := rankOf[a.link.Peer]; ok {
			a.source = rank
			m.keepLocked(&fx, a)
		} else {
			fx.addDrop(a)
		}
	}
	m.mu.Unlock()
	m.Perform(&fx)
}

// Refuse drops the messages that have arrived over a link before Open, and those that still
// arrive before it.
func (m *Messages) Refuse(fx *Effects, l *link.Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened {
		return
	}
	if m.refused == nil {
		m.refused = make(map[*link.Link]struct{})
	}
	m.refused[l] = struct{}{}
	m.unopened = slices.DeleteFunc(m.unopened, func(a arrival) bool {
		if a.link != l {
			return false
		}
		fx.addDrop(&a)
		return true
	})
}

// OnMessage sets a function that is called when a message has arrived that no receive
// waited for.
func (m *Messages) OnMessage(f func()) { m.received.Store(&f) }

// Waiting returns the number of messages that no receive has taken yet.
func (m *Messages) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.matcher.Queued() + len(m.unopened) + len(m.matched)
}

// CloseIdle makes calls fail with err from now on and returns true, unless a granted payload
// is in transfer to this rank or, with alsoSends, a send waits for its receiver.
func (m *Messages) CloseIdle(alsoSends bool, err error) (idle bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	granted := slices.ContainsFunc(m.receiving, func(r *Receive) bool { return !r.claimed })
	if granted || alsoSends && len(m.sends) > 0 {
		return false
	}
	m.err = err
	return true
}

// Fail ends all calls in progress with err, and makes calls that begin later fail with
// later. It adds to the effects. [Messages.Await] waits until no buffer is in use.
func (m *Messages) Fail(fx *Effects, err, later error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = later
	}
	m.failWaitingLocked(fx, err, func(int) bool { return true })
	m.failReceivingLocked(fx, err, func(*Receive) bool { return true })
	m.failSendsLocked(fx, err, func(*Send) bool { return true })
	early := append(m.matcher.ClearMessages(), m.unopened...)
	for t := range m.matched {
		early = append(early, t.arrival)
	}
	m.matched = nil
	m.unopened = nil
	for i := range early {
		fx.addDrop(&early[i])
	}
}

// Await blocks, after [Messages.Fail], until no failed call uses its buffers.
func (m *Messages) Await() { m.releasing.Wait() }

// Leave ends calls that need a rank that has left, with err. It adds to the effects. All
// messages of the rank have arrived. If its link has ended, payloads in transfer fail too;
// otherwise transfers that were granted continue.
func (m *Messages) Leave(fx *Effects, rank int, err error, linkEnded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return
	}
	m.left[rank], m.lastLeft = err, err
	m.failWaitingLocked(fx, err, func(source int) bool {
		return source == rank || source == Any && m.isAloneLocked()
	})
	if linkEnded {
		m.failReceivingLocked(fx, err, func(r *Receive) bool { return r.got.Source == rank })
	}
	m.failSendsLocked(fx, err, func(s *Send) bool {
		return s.rank == rank && (linkEnded || s.transfer.Grant == 0)
	})
}

// isAloneLocked reports whether all other ranks have left.
func (m *Messages) isAloneLocked() bool { return len(m.left) > 0 && len(m.left) == len(m.links)-1 }

// beginLocked returns the error of a call that sends to a rank, or receives from it or
// from Any.
func (m *Messages) beginLocked(rank int) error {
	switch {
	case m.err != nil:
		return m.err
	case len(m.left) == 0:
		return nil
	case rank == Any && m.isAloneLocked():
		return m.lastLeft
	}
	return m.left[rank]
}

// failWaitingLocked ends the receives and probes that wait for a message from a source that
// match selects. The source may be Any.
func (m *Messages) failWaitingLocked(fx *Effects, err error, match func(source int) bool) {
	for _, r := range m.matcher.ClearReceives(match) {
		m.endReceiveLocked(fx, r, err)
	}
	m.endProbesLocked(fx, func(p *probe) bool {
		if match(p.source) {
			p.err = err
		}
		return p.err != nil
	})
}

// failReceivingLocked releases the receives with a payload in transfer that match selects.
func (m *Messages) failReceivingLocked(fx *Effects, err error, match func(r *Receive) bool) {
	for _, r := range slices.Clone(m.receiving) {
		if match(r) {
			m.stopReceivingLocked(r)
			m.releaseLocked(fx, r, nil, err)
		}
	}
}

// failSendsLocked releases the sends that match selects.
func (m *Messages) failSendsLocked(fx *Effects, err error, match func(s *Send) bool) {
	for id, s := range m.sends {
		if match(s) {
			delete(m.sends, id)
			m.releaseLocked(fx, nil, s, err)
		}
	}
}

func (m *Messages) releaseLocked(fx *Effects, r *Receive, s *Send, err error) {
	m.releasing.Add(1)
	e := fx.add()
	e.kind, e.receive, e.send, e.err = release, r, s, err
}

// await blocks until done has a value, which depends on one rank or on Any, and returns
// true. If ctx ends first it returns false.
func (m *Messages) await(ctx context.Context, done <-chan struct{}, rank int) bool {
	if rank == Any {
		return m.cfg.Poller.Wait(ctx, done, m.ranks)
	}
	return m.cfg.Poller.Wait(ctx, done, m.ranks[rank:rank+1])
}
