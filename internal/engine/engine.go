// Package engine carries out the operations of communicators: collectives, and messages
// between ranks.
//
// An [Engine] serves one node. Most callers use its [Comm]s: Start begins a collective, and
// Messages has the messages. A collective is an [Op], one state machine for all of them; an
// [exec.Executor] moves its bytes, over links or in shared memory.
//
// A failed operation ends its communicator: the other ranks are told, and all operations on it
// end with the reason. When an operation has returned, nothing uses its buffers.
//
// A transition of a communicator happens under its lock and returns effects, such as frames to
// send and callers to wake, which are carried out without the lock. Functions that end in
// Locked are called with the lock held and keep it.
//
// A peer may be ahead of this node. Its frames for collectives and communicators that this node
// has not begun are kept, within bounds for each peer: credit bounds payloads, [link.Credit.Keep]
// offers, grants and queries, and commsAheadMax communicators. A peer that exceeds a bound loses
// its link, with an error that names the bound.
//
// # Ranks that wait
//
// A call that makes no progress for 40 ms (320 ms among 256 ranks) queries the ranks it waits for, eight at a time; they answer with
// their last call, which a timeout names. A rank that leaves tells its last two calls. After 500 ms it asks for their waits
// too, and follows the answers to ranks above its own, at most about 100 each second, so that the lowest rank of a deadlock learns
// of all waits. An answer has a hash of the state of its rank. If all ranks of the set that package deadlock finds answer twice with
// the same states, the second time after the set was found, these existed at one time; the counts of bytes on both ends of each link
// show that nothing was in flight. The rank logs the deadlock, and revokes its communicators after DeadlockTimeout.
//
// After 10 s without progress a rank logs its wait, if no other rank does: each answer names the first rank that has asked its sender
// lately, and that rank reports a sender in no call. The answers make a [trace.Cluster], which explains the wait.
//
// Epochs, Exclude and Include exchange no frames, but the communicator knows of them. Once the seed has been told, such a call stands in
// place of the next collective: another call of a rank that is not excluded is a mismatch. Epochs in a world that nobody has asked to
// change is no part of the order; in a deadlock it counts like a receive from any rank.
//
// # Memory of early frames
//
// Early offers, grants and queries: 262,144 for a peer, of up to 220 bytes each. Communicators that the peer uses and this node has not
// built yet: 1,024. The last 65,536 closed communicators are remembered by number, to recognize late frames.
package engine

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/callsite"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
)

// Config configures an Engine.
type Config struct {
	// EagerMax is the longest payload, in bytes, that is sent without a
	// grant. All nodes have the same. 0 means wire.PayloadMax, the largest value.
	EagerMax int
	// QueryLinkedOnly keeps the watchdog from querying ranks without a connection: in a sparse topology without relays, a
	// query of a rank that cannot be reached would end the operation.
	QueryLinkedOnly bool
	// Log may be nil.
	Log *slog.Logger
}

// An Engine carries out the operations of one node. It handles the frames of the node's
// links, except for their ends and reports of failures: the mesh decides on those, and calls
// [Engine.PeerChanged].
type Engine struct {
	cfg Config

	mu     sync.RWMutex
	comms  map[uint64]*Comm
	latest atomic.Pointer[Comm] // of comms, looked up last; nil after one was removed
	ahead  map[*link.Link]int   // number of communicators that a peer has begun and this node has not made
	ended  map[*link.Link]error // why links have ended; nil after a goodbye
	doubts map[*link.Link]error // why peers with a working link are in no communicator
	closed map[uint64]bool      // the communicators closed last

	closedIDs []uint64 // of closed, in order
	retired   uint64   // number of calls on closed communicators
	archive   recorder.Ring[Trace]
	past      counters // of closed communicators
	isClosed  bool

	clock *recorder.Clock

	sites      callsite.Reader
	stalls     atomic.Pointer[stalls] // nil before WatchStalls
	background struct {               // see Comm.InBackground
		mu sync.Mutex
		of map[*p2p.Waiters]struct{}
	}

	active atomic.Int64                       // collectives under way that exchange frames
	begun  atomic.Bool                        // a collective has begun since the last check of the watchdog
	rest   atomic.Int64                       // time between the last check of the watchdog and the next; see Engine.resting
	exact  struct{ from, until atomic.Int64 } // by the clock, when all operations are timed
	wake   chan struct{}
	stop   chan struct{}
	wg     sync.WaitGroup
}

// New returns an Engine, which has to be closed.
func New(cfg Config) *Engine {
	if cfg.EagerMax == 0 {
		cfg.EagerMax = wire.PayloadMax
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		cfg: cfg, comms: make(map[uint64]*Comm), ahead: make(map[*link.Link]int),
		ended: make(map[*link.Link]error), doubts: make(map[*link.Link]error), closed: make(map[uint64]bool), past: make(counters),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), clock: recorder.NewClock(),
	}
	for _, c := range plan.Collectives() {
		e.sites.Operations = append(e.sites.Operations, c.String())
	}
	for kind := range waitKinds {
		e.sites.Operations = append(e.sites.Operations, MessageName(uint8(kind)))
	}
	e.wg.Go(e.watch)
	return e
}

// Close ends all operations with ErrClosed, as [Comm.Close] does, and waits for
// them.
func (e *Engine) Close() {
	e.mu.Lock()
	e.isClosed = true
	e.mu.Unlock()
	e.each(func(c *Comm) { c.stop(false) })
	close(e.stop)
	e.wg.Wait()
}

// A PeerChange is a decision of the mesh about a peer.
type PeerChange struct {
	// Peer is the peer slot, and Link its last link, or nil.
	Peer int
	Link *link.Link
	// Err, if not nil, ends every communicator that contains the peer. As long as Link
	// works, communicators with it that are made later end at once, until Trusted,
	// even if the peer says goodbye.
	Err error
	// LinkEnded says that Link has ended. Without Err the peer has said goodbye: messages
	// with it fail, and a collective that needs it revokes its communicator. Others go on,
	// since the peer may end its part of the last collective earlier than this node does.
	LinkEnded bool
	// Everywhere ends the communicators on all ranks: those that have not
	// adopted the same view would wait for this rank.
	Everywhere bool
	// Trusted allows communicators with the peer again.
	Trusted bool
}

// PeerChanged applies the changes of one decision of the mesh, first to communicators that are
// made from then on, then to existing ones, in the order of the changes.
func (e *Engine) PeerChanged(changes ...PeerChange) {
	e.mu.Lock()
	for _, p := range changes {
		switch {
		case p.LinkEnded:
			e.ended[p.Link] = p.Err
		case p.Err != nil && p.Link != nil && !p.Everywhere:
			e.doubts[p.Link] = p.Err
		}
		if p.Trusted {
			delete(e.doubts, p.Link)
		}
	}
	e.mu.Unlock()
	for _, p := range changes {
		if p.Err != nil || p.LinkEnded {
			e.each(func(c *Comm) { c.peerChanged(&p) })
		}
	}
}

// linkEnd reports whether a link has ended, or its peer is in no communicator, and why; the
// error is nil after a goodbye.
func (e *Engine) linkEnd(l *link.Link) (ended bool, err error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	err, ended = e.ended[l]
	if doubt, doubted := e.doubts[l]; doubted && err == nil {
		return true, doubt
	}
	return ended, err
}

// Forget releases the state of a link that has ended and is in no later communicator, and ends
// the communicators that the peer has begun over it and this node has not made. The state of
// another link to the same peer stays. Frames of the link that arrive after Forget would
// create state again, so the link must have ended.
func (e *Engine) Forget(l *link.Link) {
	e.mu.Lock()
	delete(e.ended, l)
	delete(e.doubts, l)
	var begun []*Comm
	for _, c := range e.comms {
		if c.creator == l {
			begun = append(begun, c)
		}
	}
	delete(e.ahead, l)
	for _, c := range begun {
		c.creator = nil
		delete(e.comms, c.id)
	}
	e.latest.Store(nil)
	e.mu.Unlock()
	for _, c := range begun {
		c.end(ErrClosed)
	}
}
