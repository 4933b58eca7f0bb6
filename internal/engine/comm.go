package engine

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/affinity"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/shmcoll"
	"github.com/nexar-go/nexar/internal/trace"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Comm is a communicator: a set of ranks that communicate.
type Comm struct {
	engine *Engine
	id     uint64
	maker  int // the peer that uses it before this node has made it, or -1; see Engine.mu
	rank   int
	links  []*link.Link
	ranks  []int       // all of them
	rankOf map[int]int // by the number of the peer
	pace   pace

	mu       sync.Mutex
	quiet    sync.Cond // an operation that fails is no longer busy
	opened   bool
	loose    bool
	err      error               // why no operation may begin
	heard    *heardRevoke        // what another rank has told of it
	left     map[int]uint64      // ranks that have left, and after which collective
	lastLeft int                 // the rank that left last
	abstains *PeerError          // why no collective may begin; see Abstain
	closed   map[int]uint64      // peers that closed before this rank had made it
	revoked  map[int]heardRevoke // the same in the middle of something
	seq      uint64              // of the last collective
	ops      opTable
	past     history
	where    map[int]answer // what ranks answered when they were late

	ahead     map[uint64]*held // of collectives that have not begun here, by seq
	freeHeld  *held
	freeBytes int // capacity of their payloads
	freeOps   []*Op

	board  *shmcoll.Board  // memory that all ranks share; nil if they do not
	place  *affinity.Place // among those of this machine; nil if that does not matter
	pieces uint32          // of all collectives that were begun on it
	last   *Op             // the last that was begun on it, until it ends

	messages  p2p.Matcher[*Receive, arrival]
	receives  sync.Pool // of Receives for later ones
	sends     map[uint64]*Sending
	probes    []*probe
	arrived   atomic.Pointer[func()] // of a watcher, for messages
	watchers  []Watcher
	unopened  []arrival             // messages that came before open
	receiving map[*Receive]struct{} // whose granted payload is under way
	claimed   []*Receive            // the same without a grant; see Claim
	lastSend  uint64
	freeing   int // sends and receives that have failed but still use their buffers

	about        *trace.Comm // nil if the operations are not recorded
	bequeath     func(err error, last []Trace)
	pastMessages trace.Ring[pastMessage]
}

func newComm(e *Engine, id uint64, maker int) *Comm {
	c := &Comm{
		engine: e, id: id, maker: maker,
		left: make(map[int]uint64), closed: make(map[int]uint64), revoked: make(map[int]heardRevoke), where: make(map[int]answer),
		ahead: make(map[uint64]*held), sends: make(map[uint64]*Sending),
		receiving: make(map[*Receive]struct{}),
	}
	c.quiet.L = &c.mu
	return c
}

// open makes the communicator usable. It returns which peers have closed it by
// now, and after which collective, and what ranks have said that closed it in the
// middle of something.
func (c *Comm) open(rank int, links []*link.Link, loose bool) (closed map[int]uint64, revoked map[int]heardRevoke) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened {
		panic("engine: communicator made twice")
	}
	c.opened, c.rank, c.links, c.loose = true, rank, links, loose
	c.rankOf = make(map[int]int, len(links))
	for r, l := range links {
		c.ranks = append(c.ranks, r)
		if l != nil {
			c.rankOf[l.Peer] = r
		}
	}
	early := c.unopened
	c.unopened = nil
	for _, a := range early {
		if rank, ok := c.rankOf[a.link.Peer]; ok {
			a.source = rank
			c.messages.Keep(rank, a.tag, a)
			c.probed(&a)
		} else {
			c.dropMessage(a)
		}
	}
	if !namesRanks(c.err, len(links)) {
		c.err = &RevokedError{Rank: -1, Cause: wire.CauseCancelled, Text: "by a rank that there is not"}
	}
	revoked = make(map[int]heardRevoke)
	for peer, r := range c.revoked {
		if rank, ok := c.rankOf[peer]; ok {
			revoked[rank] = r
		}
	}
	closed, c.closed, c.revoked = c.closed, nil, nil
	return closed, revoked
}

// namesRanks reports whether the ranks that a revocation names exist.
func namesRanks(err error, size int) bool {
	switch e := err.(type) {
	case *RevokedError:
		return e.Rank < size && e.Peer < size
	case *MismatchError:
		return e.Rank < size && e.Peer < size
	}
	return true
}

// Size is the number of ranks.
func (c *Comm) Size() int { return len(c.links) }

// Links has the link to each rank. It is not to be changed.
func (c *Comm) Links() []*link.Link { return c.links }

// ID is the number of the communicator.
func (c *Comm) ID() uint64 { return c.id }

// Go calls f on a goroutine of its own, which Engine.Close waits for, or at
// once if the communicator has ended.
func (c *Comm) Go(f func()) {
	c.mu.Lock()
	if c.err == nil {
		defer c.mu.Unlock()
		c.engine.wg.Go(f)
		return
	}
	c.mu.Unlock()
	f()
}

// Err is nil as long as operations may begin.
func (c *Comm) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the communicator on this node: operations that are under way and
// later ones fail with ErrClosed. The other ranks are told, behind all that
// was sent to them: what they have of this rank by then, and the collectives
// that it has done its part in, are not affected. What is under way when
// Close is called is not whole, so that it ends the communicator on all ranks.
func (c *Comm) Close() {
	if after, orderly := c.stop(func() bool { return c.busy() || len(c.sends) > 0 }); orderly {
		c.sayClosed(after)
	}
	c.engine.forget(c)
}

// busy reports whether the others wait for what this rank has begun. It is
// called with the lock held.
func (c *Comm) busy() bool { return c.ops.live > 0 || len(c.receiving) > 0 }

// sayClosed tells the other ranks that nothing more will come of this one after a
// collective.
func (c *Comm) sayClosed(after uint64) {
	f := wire.Closed{Comm: c.id, Seq: after}
	for rank, l := range c.links {
		if rank != c.rank && l != nil {
			l.Closed(f)
		}
	}
}

// stranger ends the link to a peer that uses a communicator of others.
func (c *Comm) stranger(l *link.Link) {
	l.Fail(fmt.Errorf("engine: protocol error: a frame for communicator %d, of which the peer is no rank", c.id))
}

// closedWithin is what the others are told of a rank that closes too early.
const closedWithin = "closed during an operation"

// stop ends the communicator on this node, and on all others if it is busy, which is
// asked with the lock held. It reports whether it is the end in good order, and after
// which collective: none begins after the question.
func (c *Comm) stop(busy func() bool) (after uint64, orderly bool) {
	c.mu.Lock()
	after, orderly = c.seq, c.err == nil && !busy()
	switch {
	case orderly:
		c.setErr(ErrClosed)
	case c.err == nil:
		c.endAll(ErrClosed, wire.Revoke{Cause: wire.CauseClosed}, closedWithin)
	}
	c.mu.Unlock()
	c.passOn()
	c.end(ErrClosed)
	return after, orderly
}

// end fails all operations, now and later, and waits until they have let go
// of their buffers.
func (c *Comm) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.setErr(err)
	}
	c.failAll(err)
	for c.ops.live > 0 || c.freeing > 0 {
		c.quiet.Wait()
	}
	if c.board != nil {
		c.board.Leave()
	}
}

// failAll fails everything that is under way. It is called with the lock held.
func (c *Comm) failAll(err error) {
	c.ops.each(func(op *Op) { op.fail(err) })
	c.failReceives(err, func(int) bool { return true })
	c.failReceiving(err, func(*Receive) bool { return true })
	c.failSends(err, func(*Sending) bool { return true })
	c.dropMessages()
	for seq := range c.ahead {
		c.dropAhead(seq)
	}
}

// endAll ends the communicator on all ranks. The others are told first: a
// caller that hears of it here may close at once, and its goodbye must not come
// before the reason. It is called with the lock held.
func (c *Comm) endAll(err error, r wire.Revoke, text string) {
	c.setErr(err)
	c.tell(r, text)
	c.failAll(err)
}

// fail ends the communicator on this rank. It is called with the lock held.
func (c *Comm) fail(err error) {
	c.setErr(err)
	c.failAll(err)
}

// setErr says why no operation may begin any more. It is called with the lock
// held.
func (c *Comm) setErr(err error) {
	if f := c.bequeath; f != nil && c.err == nil && err != ErrClosed {
		last := c.traces() // before anything fails
		c.engine.wg.Go(func() { f(err, last) })
	}
	c.err = err
	for _, w := range c.watchers {
		if w.Ended != nil {
			c.engine.wg.Go(func() { w.Ended(err) })
		}
	}
}

// A Watcher is told what happens to a communicator. Its functions may be nil,
// and must not block; they are called on any goroutine.
type Watcher struct {
	// Message is called when a message has come that nobody had asked for, and
	// once for those that had come before there was a Watcher.
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
		c.arrived.Store(&w.Message)
		w.Message()
	}
}

// peerFailed ends the communicator if the peer is one of its ranks.
func (c *Comm) peerFailed(peer int, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rank, ok := c.rankOf[peer]
	if !ok || c.err != nil {
		return
	}
	var b Blamer
	if errors.As(cause, &b) {
		if blamed, ok := c.rankOf[b.Blames()]; ok {
			rank = blamed
		}
	}
	c.fail(&PeerError{Rank: rank, Err: cause})
}

// A Blamer is the reason why a peer ends its communicators with this node, if another
// peer is the cause. Communicators that contain that one name it in their errors.
type Blamer interface {
	error
	// Blames returns the number of the other peer.
	Blames() int
}

// peerRemoved is peerFailed on all ranks.
func (c *Comm) peerRemoved(peer int, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rank, ok := c.rankOf[peer]
	if !ok || c.err != nil {
		return
	}
	err := &PeerError{Rank: rank, Err: cause}
	c.endAll(err, wire.Revoke{Cause: wire.CauseFailed, Peer: uint32(rank)}, err.Error())
}

// peerLeft ends what needs a peer that has left. All that it has sent has
// come.
func (c *Comm) peerLeft(peer int) {
	c.depart(peer, 0, func(rank int) {
		c.failReceiving(leftError(rank), func(r *Receive) bool { return r.got.Source == rank })
		c.failSends(leftError(rank), func(s *Sending) bool { return s.rank == rank })
	})
}

// peerClosed ends what needs a peer that has closed the communicator after a
// collective. What has been granted, on either side, is still carried out.
func (c *Comm) peerClosed(peer int, after uint64) {
	c.depart(peer, after, func(rank int) {
		c.failSends(leftError(rank), func(s *Sending) bool { return s.rank == rank && s.transfer.Grant == 0 })
	})
}

// depart notes that a peer has left after a collective. If a later one needs
// it the communicator is revoked. Otherwise depart ends the receives that can
// no longer get a message, and calls also with the lock held.
func (c *Comm) depart(peer int, after uint64, also func(rank int)) {
	c.mu.Lock()
	rank, ok := c.rankOf[peer]
	if !ok || c.err != nil {
		c.mu.Unlock()
		return
	}
	c.left[rank], c.lastLeft = after, rank
	err := leftError(rank)
	needed := false
	c.ops.each(func(op *Op) { needed = needed || op.call.Seq > after && op.needs(rank) })
	if !needed {
		c.failReceives(err, func(source int) bool { return source == rank || source == p2p.Any && c.alone() })
		also(rank)
	}
	watchers := c.watchers
	c.mu.Unlock()
	if needed {
		c.revokeLeft(err)
		return
	}
	for _, w := range watchers {
		if w.Left != nil {
			w.Left(rank, err)
		}
	}
}

// alone reports whether all other ranks have left, so that no message can come
// from any of them.
func (c *Comm) alone() bool { return len(c.left) > 0 && len(c.left) == len(c.links)-1 }

// revokeLeft ends the communicator because a rank has left that is needed.
func (c *Comm) revokeLeft(err *PeerError) {
	c.revoke(err, wire.Revoke{Cause: wire.CauseFailed, Peer: uint32(err.Rank)}, err.Error())
}

func leftError(rank int) *PeerError {
	return &PeerError{Rank: rank, Left: true, Err: transport.ErrPeerClosed}
}

// noteEnd keeps the end of a link for communicators that are made later.
func (e *Engine) noteEnd(l *link.Link, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended[l] = err
}

// Forget forgets what is known of a link that no communicator will be made of any
// more, and the communicators that its peer has begun and this node has not made. All
// that would be kept, with what the peer shares with this node.
func (e *Engine) Forget(l *link.Link) {
	e.mu.Lock()
	delete(e.ended, l)
	delete(e.doubts, l)
	var begun []*Comm
	for _, c := range e.comms {
		if c.maker == l.Peer {
			begun = append(begun, c)
		}
	}
	delete(e.ahead, l.Peer)
	for _, c := range begun {
		c.maker = -1
		delete(e.comms, c.id)
	}
	e.mu.Unlock()
	for _, c := range begun {
		c.end(ErrClosed)
	}
}
