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
	m.update(func(fx *Effects) {
		m.opened, m.links, m.rankOf = true, links, rankOf
		for rank := range links {
			m.ranks = append(m.ranks, rank)
		}
		for i := range m.unopened {
			a := &m.unopened[i]
			if rank, ok := rankOf[a.link.Peer]; ok {
				a.source = rank
				m.keepLocked(fx, a)
			} else {
				fx.addDrop(a)
			}
		}
		m.unopened = nil
	})
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
	m.failLocked(fx, err, func(int) bool { return true }, func(*Receive) bool { return true }, func(*Send) bool { return true })
	early := append(m.matcher.ClearMessages(), m.unopened...)
	for t := range m.matched {
		early = append(early, t.arrival)
	}
	m.matched, m.unopened = nil, nil
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
	isSource := func(source int) bool { return source == rank || source == Any && m.isAloneLocked() }
	m.failLocked(fx, err, isSource,
		func(r *Receive) bool { return linkEnded && r.got.Source == rank },
		func(s *Send) bool { return s.rank == rank && (linkEnded || s.transfer.Grant == 0) })
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

// failLocked ends the receives and probes that wait for a message from a selected source, which may
// be Any, and releases the selected receives with a payload in transfer and the selected sends.
func (m *Messages) failLocked(fx *Effects, err error, sources func(source int) bool, receives func(r *Receive) bool, sends func(s *Send) bool) {
	for _, r := range m.matcher.ClearReceives(sources) {
		m.endReceiveLocked(fx, r, err)
	}
	m.endProbesLocked(fx, func(p *probe) bool {
		if sources(p.source) {
			p.err = err
		}
		return p.err != nil
	})
	for _, r := range slices.Clone(m.receiving) {
		if receives(r) {
			m.stopReceivingLocked(r)
			m.releaseLocked(fx, func() { r.from.Ungrant(&r.sink) }, func(fx *Effects) { m.failReceiveLocked(fx, r, err) })
		}
	}
	for id, s := range m.sends {
		if sends(s) {
			delete(m.sends, id)
			m.releaseLocked(fx, func() { m.links[s.rank].Recall(&s.transfer) }, func(fx *Effects) { m.endSendLocked(fx, s, err) })
		}
	}
}

// releaseLocked adds the effect that withdraws a failed receive or send, which blocks until nothing
// uses its buffers, and then ends it.
func (m *Messages) releaseLocked(fx *Effects, withdraw func(), endLocked func(fx *Effects)) {
	m.releasing.Add(1)
	e := fx.add()
	e.kind = release
	e.release = func() {
		defer m.releasing.Done()
		withdraw()
		m.update(endLocked)
	}
}

// update makes a transition under the lock and carries its effects out.
func (m *Messages) update(transition func(fx *Effects)) {
	fx := new(Effects)
	m.mu.Lock()
	transition(fx)
	m.mu.Unlock()
	m.Perform(fx)
}

// await blocks until done has a value, which depends on one rank or on Any, and returns
// true. If ctx ends first it returns false.
func (m *Messages) await(ctx context.Context, done <-chan struct{}, rank int) bool {
	if rank == Any {
		return m.cfg.Poller.Wait(ctx, done, m.ranks)
	}
	return m.cfg.Poller.Wait(ctx, done, m.ranks[rank:rank+1])
}
