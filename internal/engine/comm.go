package engine

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nexar-go/nexar/internal/affinity"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Comm is a communicator: a set of ranks that communicate.
type Comm struct {
	engine   *Engine
	id       uint64
	creator  *link.Link // over which a peer has begun it; nil once this node has made it; see Engine.mu
	rank     int
	linkTo   []*link.Link
	rankOf   map[int]int // by the number of the peer
	poller   poll.Poller
	links    *linkexec.Executor
	messages *p2p.Messages // with a lock of its own, which is taken after mu

	mu        sync.Mutex
	drained   sync.Cond // an operation has ended, or effects were carried out
	opened    bool
	loose     bool
	err       error           // why no operation may begin
	heard     *revocation     // what another rank has told of the end
	left      map[int]uint64  // by rank that has left: the last collective it took part in
	refuses   *PeerError      // why no collective may begin; see RefuseCollectives
	closedBy  map[int]uint64  // peers that closed before this rank had made it; like left
	revokedBy []revocation    // by peers before this rank had made it, in order; one for each peer
	seq       uint64          // of the last collective
	executors []exec.Executor // by ID
	calls     calls
	free      [][]*Op                // by executor: operations for later calls
	early     map[uint64]*exec.Frame // for collectives that have not begun, by sequence number
	frames    exec.FramePool
	answers   map[int]answer // what ranks answered to probes
	watchers  []Watcher
	unsettled int // ends whose effects are being carried out

	about *recorder.Comm // nil if the operations are not recorded
	onEnd func(err error, last []Trace)
}

func newComm(e *Engine, id uint64, creator *link.Link) *Comm {
	c := &Comm{
		engine: e, id: id, creator: creator,
		left: make(map[int]uint64), closedBy: make(map[int]uint64), answers: make(map[int]answer),
	}
	c.drained.L = &c.mu
	c.poller.Active = &e.active
	c.messages = p2p.New(p2p.Config{Comm: id, EagerMax: e.cfg.EagerMax, Owner: c, Poller: &c.poller, Clock: e})
	c.UseExecutor(exec.Links, func(mu *sync.Mutex) exec.Executor {
		c.links = linkexec.New(mu, e.cfg.EagerMax, &c.poller)
		return c.links
	})
	return c
}

// open makes the communicator usable. It returns the peers that have closed it by now,
// each with its last collective, and the revocations by peers.
func (c *Comm) open(rank int, links []*link.Link, loose bool) (closed map[int]uint64, revoked []revocation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened {
		panic("engine: communicator made twice")
	}
	c.opened, c.rank, c.linkTo, c.loose = true, rank, links, loose
	c.rankOf = make(map[int]int, len(links))
	for r, l := range links {
		if l != nil {
			c.rankOf[l.Peer] = r
		}
	}
	c.poller.Links = links
	c.links.SetLinks(links)
	closed, revoked = c.closedBy, c.revokedBy
	c.closedBy, c.revokedBy = nil, nil
	return closed, revoked
}

// Size is the number of ranks.
func (c *Comm) Size() int { return len(c.linkTo) }

// Links has the link to each rank. It must not be changed.
func (c *Comm) Links() []*link.Link { return c.linkTo }

// ID is the number of the communicator.
func (c *Comm) ID() uint64 { return c.id }

// Err is nil as long as operations may begin.
func (c *Comm) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// UseExecutor adds the executor that recipes name by id, until the communicator is closed. All
// ranks do so, before the first collective. newExecutor is called with the lock of the
// communicator.
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
// first collective, and takes precedence over Spread.
func (c *Comm) SetPlace(p *affinity.Place) { c.poller.Place = p }

// Spread keeps this rank away from the processors that other ranks of its machine use, as far
// as links tell them. Processors is how many this process may use. It is called when
// something has arrived on every link, and before the first collective.
func (c *Comm) Spread(machine []int, processors int) { c.poller.Spread(c.rank, machine, processors) }

// Close ends the communicator on this node: operations that are under way and
// later ones fail with ErrClosed. The other ranks are told, behind all that
// was sent to them: what they have of this rank by then, and the collectives
// that it has done its part in, are not affected. What is under way when
// Close is called is not whole, so that it ends the communicator on all ranks.
func (c *Comm) Close() {
	if after, orderly := c.stop(true); orderly {
		c.tell(func(l *link.Link) { l.Closed(wire.Closed{Comm: c.id, Seq: after}) })
	}
	c.engine.forget(c)
}

// closedWithin is what the others are told of a rank that closes too early.
const closedWithin = "closed during an operation"

// stop ends the communicator on this node, and on all others if these wait for what
// this rank has begun: a collective, a granted payload or, with sends, a message. It
// reports whether nothing was under way, and which was the last collective.
func (c *Comm) stop(sends bool) (after uint64, orderly bool) {
	fx := new(effects)
	c.mu.Lock()
	after = c.seq
	if c.err == nil {
		orderly = c.calls.live == 0 && c.messages.CloseIdle(sends, &EndedError{ErrClosed})
		if orderly {
			c.setErrLocked(fx, ErrClosed)
		} else {
			c.revokeLocked(fx, ErrClosed, wire.Revoke{Cause: wire.CauseClosed}, closedWithin)
		}
	}
	c.mu.Unlock()
	c.carryOut(fx)
	c.forwardRevoke()
	c.end(ErrClosed)
	return after, orderly
}

// end fails all operations, now and later, and waits until they have released
// their buffers.
func (c *Comm) end(err error) {
	fx := new(effects)
	c.mu.Lock()
	if c.err == nil {
		c.setErrLocked(fx, err)
	}
	c.failAllLocked(fx, err)
	c.mu.Unlock()
	c.carryOut(fx)
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
	c.setErrLocked(fx, err)
	c.failAllLocked(fx, err)
}

// failAllLocked fails everything that is under way.
func (c *Comm) failAllLocked(fx *effects, err error) {
	c.calls.each(func(op *Op) {
		if op.failLocked(err) {
			fx.failed = append(fx.failed, op)
		}
	})
	c.messages.Fail(&fx.messages, err, &EndedError{err})
	c.discardEarlyLocked(nil, fx)
	c.awaitLocked(fx)
}

// awaitLocked has [Comm.end], and thereby Close, wait until fx has been carried out.
func (c *Comm) awaitLocked(fx *effects) {
	if !fx.ended {
		fx.ended = true
		c.unsettled++
	}
}

// setErrLocked sets the error of later operations. The watchers are notified by fx, which
// Close waits for.
func (c *Comm) setErrLocked(fx *effects, err error) {
	c.awaitLocked(fx)
	if f := c.onEnd; f != nil && err != ErrClosed {
		last := c.tracesLocked() // before anything fails
		fx.spawn = append(fx.spawn, func() { f(err, last) })
	}
	c.err = err
	for _, w := range c.watchers {
		if w.Ended != nil {
			fx.spawn = append(fx.spawn, func() { w.Ended(err) })
		}
	}
}

// A Watcher is told what happens to a communicator. Its functions may be nil,
// and must not block; they are called on any goroutine.
type Watcher struct {
	// Message is called when a message has arrived that no receive waited for, and
	// once for those that had arrived before there was a Watcher.
	Message func()
	// Left is called when a rank has left, and Ended when no operation may begin
	// any more, and why. After Ended, Left is not called.
	Left  func(rank int, err error)
	Ended func(err error)
}

// Watch tells w of what happens to the communicator, and of what has happened
// by now. There may be several Watchers, one of them with Message.
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
			w.Left(rank, leftError(rank))
		}
	}
	if w.Message != nil {
		c.messages.OnMessage(w.Message)
		w.Message()
	}
}

// unexpectedPeer ends the link to a peer that uses a communicator of others.
func (c *Comm) unexpectedPeer(l *link.Link) {
	l.Fail(fmt.Errorf("engine: protocol error: a frame for communicator %d, of which the peer is not a rank", c.id))
}

// A Blamer is the reason why a peer ends its communicators with this node, if another
// peer is the cause. Communicators that contain that one name it in their errors.
type Blamer interface {
	error
	// Blames returns the number of the other peer.
	Blames() int
}

// peerChanged ends what needs a peer that is of no use any more.
func (c *Comm) peerChanged(p *PeerChange) {
	if p.Err == nil {
		c.peerLeft(p.Peer, 0, true)
		return
	}
	fx := new(effects)
	c.mu.Lock()
	rank, ok := c.rankOf[p.Peer]
	switch {
	case !ok || c.err != nil:
	case p.Everywhere:
		err := &PeerError{Rank: rank, Err: p.Err}
		c.revokeLocked(fx, err, wire.Revoke{Cause: wire.CauseFailed, Peer: uint32(rank)}, err.Error())
	default:
		var b Blamer
		if errors.As(p.Err, &b) {
			if blamed, ok := c.rankOf[b.Blames()]; ok {
				rank = blamed
			}
		}
		c.failLocked(fx, &PeerError{Rank: rank, Err: p.Err})
	}
	c.mu.Unlock()
	c.carryOut(fx)
}

// peerLeft ends calls that need a peer that has left after a collective. All frames of the
// peer have arrived. If a later collective needs it the communicator is revoked. If its link
// stands, payloads that were granted, on either side, are still carried out.
func (c *Comm) peerLeft(peer int, after uint64, linkEnded bool) {
	fx := new(effects)
	c.mu.Lock()
	if rank, ok := c.rankOf[peer]; ok && c.err == nil {
		c.peerLeftLocked(fx, rank, after, linkEnded)
	}
	c.mu.Unlock()
	c.carryOut(fx)
}

func (c *Comm) peerLeftLocked(fx *effects, rank int, after uint64, linkEnded bool) {
	err := leftError(rank)
	c.left[rank] = after
	needed := false
	c.calls.each(func(op *Op) { needed = needed || op.call.Seq > after && op.exec.NeedsLocked(rank) })
	if needed {
		c.revokeLeftLocked(fx, err)
		return
	}
	c.messages.Leave(&fx.messages, rank, err, linkEnded)
	for _, w := range c.watchers {
		if w.Left != nil {
			fx.calls = append(fx.calls, func() { w.Left(rank, err) })
		}
	}
}

func leftError(rank int) *PeerError {
	return &PeerError{Rank: rank, Left: true, Err: transport.ErrPeerClosed}
}
