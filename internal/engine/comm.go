package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/affinity"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// A Comm is a communicator on this node.
type Comm struct {
	engine   *Engine
	id       uint64
	creator  *link.Link // over which a peer has begun it; nil once this node has made it; see Engine.mu
	rank     int
	linkTo   []*link.Link
	rankOf   *p2p.Ranks
	named    []int // see Engine.NewNamedComm; nil: by their ranks here
	poller   poll.Poller
	messages *p2p.Messages // has a lock of its own, which is taken after mu
	limited  atomic.Int32  // goroutines that wait for a collective with a deadline of their own
	onDevice atomic.Int32  // see DeviceWork

	mu         sync.Mutex
	drained    sync.Cond // an operation has ended, or effects were carried out
	opened     bool      // this node has made it
	loose      bool
	err        error         // why no operation may begin
	draining   bool          // err is set, and collectives that do not need a failed rank go on
	refused    bool          // refuseLocked has told the other ranks
	revocation *ending       // the one that has ended it
	left       map[int]leave // by rank that has left
	refuses    *int          // a rank that has left, so that no collective may begin; see RefuseCollectives
	endings    []ending      // reports of peers before this node has made it
	seq        uint64        // of the last collective
	executors  []exec.Executor
	calls      calls
	free       [][]*Op                // by executor: operations for later calls
	early      map[uint64]*exec.Frame // for collectives that have not begun, by sequence number
	frames     exec.FramePool
	answers    map[int]answer // by rank: its answer to queries
	watchers   []Watcher
	background map[uint64]*p2p.Waiters // by sequence number: see Op.InBackground
	unsettled  int                     // transitions to the end; their effects are being carried out
	worlds     []*WorldWait

	traced  *recorder.Comm // nil if the communicator is not traced
	inView  *viewLinks     // see collectLinksLocked; nil before the first call
	viewEnd int            // see viewEndLocked; 0 before the first call

	counters     []*Counter       // of collectives
	counter      *Counter         // the one that was needed last, or nil
	messageWaits [2]trace.Counter // Waited and WaitedFor of sends and receives
}

func newComm(e *Engine, id uint64, creator *link.Link) *Comm {
	c := &Comm{engine: e, id: id, creator: creator, left: make(map[int]leave), answers: make(map[int]answer)}
	c.drained.L = &c.mu
	c.poller.Active = &e.active
	c.messages = p2p.New(p2p.Config{Comm: id, EagerMax: e.cfg.EagerMax, Owner: c, Poller: &c.poller, Clock: e})
	return c
}

// open makes the communicator usable, and applies reports of peers about its end.
func (c *Comm) open(rank int, links []*link.Link, named []int, loose bool) {
	c.mu.Lock()
	if c.opened {
		panic("engine: communicator made twice")
	}
	c.opened, c.rank, c.linkTo, c.named, c.loose = true, rank, links, named, loose
	c.rankOf = p2p.NewRanks(links)
	c.poller.Links = links
	c.mu.Unlock()
	c.UseExecutor(exec.Links, func(mu *sync.Mutex) exec.Executor { return linkexec.New(mu, c.engine.cfg.EagerMax, &c.poller) })
	c.messages.Open(links, c.rankOf)
	c.update(func(fx *effects) {
		for i := range c.endings {
			c.endedByLocked(fx, &c.endings[i])
		}
		c.endings = nil
	})
}

// Size returns the number of ranks.
func (c *Comm) Size() int { return len(c.linkTo) }

// Links returns the link to each rank. It must not be changed.
func (c *Comm) Links() []*link.Link { return c.linkTo }

// member returns a rank as errors name it.
func (c *Comm) member(rank int) p2p.Member {
	named := rank
	if c.named != nil {
		named = c.named[rank]
	}
	return p2p.NewMember(c.linkTo[rank], named)
}

// RankOf returns the rank here of a member of any communicator.
func (c *Comm) RankOf(m p2p.Member) (rank int, ok bool) { return c.rankOf.Rank(m) }

// ID returns the ID of the communicator, which all ranks share.
func (c *Comm) ID() uint64 { return c.id }

// Messages returns the messages of the communicator.
func (c *Comm) Messages() *p2p.Messages { return c.messages }

// Err returns why operations fail to begin, or nil.
func (c *Comm) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// UseExecutor adds the executor that schedules name by id, until the communicator is closed. All
// ranks do so, before the first collective. newExecutor is called with the lock of the
// communicator, which guards the executor.
func (c *Comm) UseExecutor(id exec.ID, newExecutor func(mu *sync.Mutex) exec.Executor) {
	x := newExecutor(&c.mu)
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.executors) <= int(id) {
		c.executors, c.free = append(c.executors, nil), append(c.free, nil)
	}
	c.executors[id] = x
	if c.err != nil { // Close may have been called before.
		x.CloseLocked()
	}
}

// SetPlace assigns this rank to a processor of its own while it waits. It is called before the
// first collective, and takes precedence over [Comm.Spread].
func (c *Comm) SetPlace(p *affinity.Place) { c.poller.Place = p }

// Spread keeps this rank away from the processors that other ranks of its machine use, as far
// as links tell them. This process may use so many processors. Spread is called when
// something has arrived on every link, and before the first collective.
func (c *Comm) Spread(machine []int, processors int) { c.poller.Spread(c.rank, machine, processors) }

// Close ends the communicator on this node: operations under way and later ones fail with
// ErrClosed. It waits until none of them uses its buffers. The other ranks are told after
// all frames of this rank: messages that it has sent, and collectives that it has done its
// part in, are not affected. An operation that is under way ends the communicator on all
// ranks.
func (c *Comm) Close() {
	c.stop(true)
	c.engine.forget(c)
}

// closedDuringOperation is the text of the revocation by a rank that closes too early.
const closedDuringOperation = "closed during an operation"

// stop ends the communicator on this node, and on all others if these wait for a collective or
// a granted payload of this rank or, with sends, for a message. If nothing was under way, it tells
// the others the last collective of this rank: one of them may have made another call in its place. A rank that
// has received a revocation repeats it first: others that have not received it would blame this rank.
func (c *Comm) stop(sends bool) {
	var closed *wire.Closed
	c.update(func(fx *effects) {
		switch {
		case c.revocation != nil:
			fx.revoke, fx.text, fx.linked = c.revocation.revoke, c.revocation.text, true
			c.revocation = nil
		case c.hasEndedLocked():
		case c.draining:
			c.revokeFailedLocked(fx)
		case c.calls.live == 0 && c.messages.CloseIdle(sends, &EndedError{ErrClosed}):
			if c.opened { // Otherwise its ranks are not known.
				closed = c.closedLocked()
			}
			c.setErrLocked(fx, ErrClosed)
		default:
			c.revokeLocked(fx, ErrClosed, wire.Revoke{Cause: wire.CauseClosed}, closedDuringOperation)
		}
	})
	c.end(ErrClosed)
	if closed != nil {
		frame := closed.Append(nil)
		c.tell(func(l *link.Link) { l.Closed(frame) })
	}
}

// closedLocked returns the last collectives of this rank.
func (c *Comm) closedLocked() *wire.Closed {
	f := new(wire.Closed)
	if s := c.calls.get(c.seq); s != nil {
		f.Last = s.Call
	}
	if s := c.calls.get(c.seq - 1); s != nil {
		f.Before = s.Call
	}
	f.Last.Comm = c.id
	return f
}

// end fails all operations, now and later, and waits until they have released
// their buffers.
func (c *Comm) end(err error) {
	c.update(func(fx *effects) {
		c.worlds = nil
		if c.err == nil {
			c.setErrLocked(fx, err)
		}
		c.failAllLocked(fx, err)
	})
	c.messages.Await()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.calls.live > 0 || c.unsettled > 0 {
		c.drained.Wait()
	}
	for _, x := range c.executors {
		if x != nil {
			x.CloseLocked()
		}
	}
}

// failLocked ends the communicator on this rank.
func (c *Comm) failLocked(fx *effects, err error) {
	c.worldFailsLocked(fx, err)
	if c.err == nil {
		c.setErrLocked(fx, err)
	}
	c.failAllLocked(fx, err)
}

// failAllLocked fails all operations under way, and drops frames that no operation uses.
func (c *Comm) failAllLocked(fx *effects, err error) {
	c.draining = false
	c.calls.each(func(op *Op) {
		if op.failLocked(err) {
			fx.spawn = append(fx.spawn, op.abandon)
		}
	})
	c.messages.Fail(&fx.messages, err, &EndedError{err})
	c.discardEarlyLocked(nil, fx)
	c.awaitLocked(fx)
}

// awaitLocked makes [Comm.end] wait until fx has been carried out.
func (c *Comm) awaitLocked(fx *effects) {
	if !fx.ended {
		fx.ended = true
		c.unsettled++
	}
}

// setErrLocked sets the error of later operations. Watchers are notified by fx, which
// Close waits for.
func (c *Comm) setErrLocked(fx *effects, err error) {
	c.awaitLocked(fx)
	c.err = err
	for _, w := range c.watchers {
		if w.Ended != nil {
			fx.spawn = append(fx.spawn, func() { w.Ended(err) })
		}
	}
}

// A Watcher is notified of the events of a communicator. Its functions may be nil,
// and must not block; they are called on any goroutine.
type Watcher struct {
	// Message is called when a message has arrived that no receive waited for, and
	// once by Watch, for those that arrived before.
	Message func()
	// Left is called when a rank has left, and Ended when no operation may begin
	// any more. After Ended, Left is not called.
	Left  func(rank int, err error)
	Ended func(err error)
}

// Watch notifies w of the events of the communicator, also of those before. There may be
// several Watchers, one of them with Message.
func (c *Comm) Watch(w Watcher) {
	c.mu.Lock()
	c.watchers = append(c.watchers, w)
	err, left := c.err, maps.Clone(c.left)
	c.mu.Unlock()
	if w.Ended != nil && err != nil {
		w.Ended(err)
	}
	if w.Left != nil && err == nil {
		for rank := range left {
			w.Left(rank, c.leftError(rank))
		}
	}
	if w.Message != nil {
		c.messages.OnMessage(w.Message)
		w.Message()
	}
}

// notMember is the protocol error of a peer that uses a communicator of others.
func (c *Comm) notMember() error {
	return fmt.Errorf("a frame for communicator %d, of which the peer is not a rank", c.id)
}

// A Blamer is the reason of a peer for ending its communicators with this node, if another
// peer is the cause. Communicators that contain the other peer name it in their errors.
type Blamer interface {
	error
	// Blames returns the peer slot of the other peer.
	Blames() int
}

// peerChanged ends the operations that need a peer which has failed or left.
func (c *Comm) peerChanged(p *PeerChange) {
	c.update(func(fx *effects) {
		rank, isMember := c.rankOf.Of(p.Peer)
		switch {
		case !isMember || c.hasEndedLocked():
		case p.Err == nil:
			c.peerLeftLocked(fx, rank, leave{}, true)
		case p.Everywhere:
			c.revokeLocked(fx, &PeerError{Rank: c.member(rank), Err: p.Err}, wire.Revoke{Cause: wire.CauseFailed, Peer: uint32(rank)}, p.Err.Error())
		default:
			cause := rank
			var b Blamer
			if errors.As(p.Err, &b) {
				if blamed, ok := c.rankOf.Of(b.Blames()); ok {
					cause = blamed
				}
			}
			l := c.linkTo[rank]
			linkEnded := p.LinkEnded || l.IsPending() || l.IsOver()
			c.peerFailedLocked(fx, rank, &PeerError{Rank: c.member(cause), Err: p.Err}, linkEnded)
		}
	})
}

// A leave holds the last collective that a rank may still take part in after it has left, and its last calls.
type leave struct {
	after  uint64
	closed wire.Closed
}

// peerLeftLocked ends calls that need a rank that has left. All its frames
// have arrived. If a later collective needs the rank, the communicator is revoked. Unless its
// link has ended, granted payloads are still carried out, in both directions.
func (c *Comm) peerLeftLocked(fx *effects, rank int, h leave, linkEnded bool) {
	if h.closed.Last.Seq == 0 { // The goodbye of a rank that may have closed the communicator before.
		h.closed = c.left[rank].closed
	}
	_, known := c.left[rank]
	c.left[rank] = h
	switch needed := c.needsLocked(rank, h.after); {
	case needed && c.draining: // It has left because of the failure.
		c.revokeFailedLocked(fx)
		return
	case c.draining:
		return // Messages have ended.
	case c.differsLocked(fx, rank):
		return
	case needed:
		c.revokeLeftLocked(fx, rank)
		return
	}
	err := c.leftError(rank)
	c.messages.Leave(&fx.messages, rank, err, linkEnded)
	for _, w := range c.watchers {
		if w.Left != nil && !known {
			fx.calls = append(fx.calls, func() { w.Left(rank, err) })
		}
	}
}

// differsLocked ends the communicator if a rank that has left made another call than this rank in place of one of its last ones.
func (c *Comm) differsLocked(fx *effects, rank int) bool {
	closed := c.left[rank].closed
	for _, theirs := range []wire.Call{closed.Before, closed.Last} {
		if ours := c.calls.get(theirs.Seq); ours != nil && ours.Call != theirs {
			c.mismatchLocked(fx, ours.Call, rank, theirs)
			return true
		}
	}
	return false
}

func (c *Comm) leftError(rank int) *PeerError {
	return &PeerError{Rank: c.member(rank), Left: true, Err: transport.ErrPeerClosed}
}

// queriedLocked returns the ranks that an operation queries in a round: at first those that it waits for, then all
// but this one, beginning with the next. A query needs a connection, so ranks with pending links are queried
// only if the operation still makes no progress after several rounds, and never with [Config.QueryLinkedOnly]. Among few
// ranks, those that it waits for are queried at once.
func (c *Comm) queriedLocked(awaited []int, round int) []int {
	size, all := len(c.linkTo), queryPendingRound
	if size > queryFew {
		all = queryPendingLate
	}
	ranks := slices.Clone(awaited)
	if round > 1 {
		ranks = c.others()
	}
	return slices.DeleteFunc(ranks, func(rank int) bool {
		l := c.linkTo[rank]
		if l == nil || !l.IsPending() {
			return false
		}
		isQueried := round >= all && size <= queryAllMax ||
			(size <= queryAwaitedFew || round >= queryPendingRound) && slices.Contains(awaited, rank)
		return !isQueried || c.engine.cfg.QueryLinkedOnly
	})
}

// others returns the ranks but this one, beginning with the next.
func (c *Comm) others() []int {
	ranks := make([]int, len(c.linkTo)-1)
	for i := range ranks {
		ranks[i] = (c.rank + 1 + i) % len(c.linkTo)
	}
	return ranks
}
