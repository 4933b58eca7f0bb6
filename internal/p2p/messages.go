// Package p2p sends and receives the point-to-point messages of a communicator.
//
// A short message is sent with its payload if there is credit. For any other message the sender
// sends an offer; a receive that matches it grants it, and then the payload is sent directly to the
// buffer of the receive. Messages and offers that no receive waits for are kept. Package match
// pairs messages with receives.
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
	"github.com/nexar-go/nexar/trace"
)

// Any stands for every source or every tag in receives and probes.
const Any = match.Any

// An Owner is the communicator that Messages belong to. Messages calls it without holding a lock.
type Owner interface {
	// CancelIf ends the communicator because the context of a call has ended with cause, unless the
	// communicator has ended already or cancel returns false. If cancel returns true, the owner must
	// call [Messages.Fail] before it calls [Messages.Leave] again: only Fail ends the call.
	CancelIf(cancel func() bool, cause error)
	// Cause returns the cause of the context of a call that has ended, and the ranks that the call waits for, which began at a time of Config.Clock.
	Cause(ctx context.Context, w Wait, begun int64) error
	// Go calls f on a new goroutine or, if the communicator has ended, before it returns.
	Go(f func())
	// Spawn calls f on a goroutine that the owner waits for.
	Spawn(f func())
}

// A Clock returns the times at which calls begin and end, for traces.
type Clock interface {
	Stamp() int64
	StampEnd(begun int64) int64
}

// Config configures Messages.
type Config struct {
	Comm     uint64 // number of the communicator
	EagerMax int    // length in bytes of the longest payload that needs no grant
	Owner    Owner
	Poller   *poll.Poller
	Clock    Clock
}

// Messages has the sends, receives and probes of one communicator that are in progress, and the
// messages that have arrived and that no receive has taken.
//
// Messages that arrive before Open are kept. Each state transition runs under the lock and adds
// [Effects], which Perform carries out after the lock is released.
type Messages struct {
	cfg       Config
	received  atomic.Pointer[func()] // see OnMessage
	receives  sync.Pool              // of Receives for reuse
	releasing sync.WaitGroup         // failed sends and receives that still use their buffers
	ranks     atomic.Pointer[[]int]  // see Messages.peers

	mu        sync.Mutex
	opened    bool
	links     []*link.Link
	rankOf    *Ranks
	err       error         // of calls that begin now; nil if they may
	left      map[int]error // of calls that need the rank, which has left
	lastLeft  error         // the value in left of the rank that left last
	matcher   match.Matcher[*Receive, arrival]
	unopened  []arrival               // arrived before Open
	refused   map[*link.Link]struct{} // see Refuse
	probes    []*probe
	matched   map[*Matched]struct{} // not received yet
	receiving []*Receive            // whose payloads are in transfer; see Receive.index
	sends     map[uint64]*Send      // that wait for a grant, or have one; by Send.id
	lastSend  uint64
	begun     uint64           // number of calls
	orders    [][Probed]uint32 // by rank and kind, the number of messages; made by the first one
	tracing   bool
	counts    [2]trace.Counter
	past      recorder.Ring[Trace]
}

// New returns the messages of a communicator.
func New(cfg Config) *Messages {
	return &Messages{cfg: cfg, left: make(map[int]error), sends: make(map[uint64]*Send)}
}

// Open sets the link to each rank, and the rank of each peer slot. It drops the messages that have
// arrived from peers without a rank.
func (m *Messages) Open(links []*link.Link, rankOf *Ranks) {
	m.update(func(fx *Effects) {
		m.opened, m.links, m.rankOf = true, links, rankOf
		for i := range m.unopened {
			a := &m.unopened[i]
			if rank, ok := rankOf.Of(a.link.Peer); ok {
				a.source, a.order = rank, m.orderLocked(rank, Got)
				m.keepLocked(fx, a)
			} else {
				fx.addDrop(a)
			}
		}
		m.unopened = nil
	})
}

// Refuse drops all messages of a link that arrive before Open. It adds to fx. After Open it does
// nothing.
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

// Link returns the link to a rank. It must not be called before Open.
func (m *Messages) Link(rank int) *link.Link { return m.links[rank] }

// OnMessage sets the function that is called, without locks, after a message has been received or
// kept, or an offer has arrived.
func (m *Messages) OnMessage(f func()) { m.received.Store(&f) }

// Waiting returns the number of messages that no receive has taken.
func (m *Messages) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.matcher.Queued() + len(m.unopened) + len(m.matched)
}

// CloseIdle makes all later calls fail with err and returns true. It returns false and does nothing
// while a granted payload is in transfer to this rank or, with alsoSends, a send is in progress.
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

// Fail ends all calls in progress with err, and makes later calls fail with later. It adds to fx. A
// call whose buffer is in use ends when the link has released the buffer; see [Messages.Await].
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

// Await blocks until no failed call uses its buffer. Call it after [Messages.Fail].
func (m *Messages) Await() { m.releasing.Wait() }

// Leave ends the calls that need a rank that has left, with err. It adds to fx. It must be called
// after all messages of the rank have arrived. Calls from Any end when all other ranks have left. If
// the link has ended, payloads in transfer fail too; otherwise granted transfers continue.
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

// beginLocked returns why a call with rank, which may be Any, cannot begin, or nil.
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

// failLocked ends, with err, the waiting receives and probes whose source (possibly Any) is selected by
// sources, the receives with a payload in transfer selected by receives, and the sends selected by
// sends. The latter two end when the link no longer uses their buffers.
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
			m.releaseLocked(fx, func() { r.from.Ungrant(r.sink) }, func(fx *Effects) { m.failReceiveLocked(fx, r, err) })
		}
	}
	for id, s := range m.sends {
		if sends(s) {
			delete(m.sends, id)
			m.releaseLocked(fx, func() { m.links[s.rank].Recall(&s.transfer) }, func(fx *Effects) { m.endSendLocked(fx, s, err) })
		}
	}
}

// releaseLocked adds the effect that calls withdraw, which blocks until the link no longer uses the
// buffer of a failed receive or send, and then endLocked, which ends it.
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

// update calls transition under the lock and then carries its effects out.
func (m *Messages) update(transition func(fx *Effects)) {
	fx := new(Effects)
	m.mu.Lock()
	transition(fx)
	m.mu.Unlock()
	m.Perform(fx)
}

// await blocks until done is given and returns true, or until ctx ends and returns false.
// Meanwhile it may poll the link of rank, or all links if rank is Any.
func (m *Messages) await(ctx context.Context, done *poll.Signal, rank int) bool {
	return m.cfg.Poller.Wait(ctx, done, m.peers(rank))
}

// peers returns the ranks that a call with rank, which may be Any, waits for. The first call makes the list: the ranks of many
// communicators get no message.
func (m *Messages) peers(rank int) []int {
	ranks := m.ranks.Load()
	if ranks == nil {
		all := upTo(len(m.links))
		ranks = &all
		m.ranks.Store(ranks)
	}
	if rank == Any {
		return *ranks
	}
	return (*ranks)[rank : rank+1 : rank+1]
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}
