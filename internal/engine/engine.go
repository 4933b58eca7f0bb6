// Package engine carries out what the ranks of a communicator do together:
// collectives, as plans, and messages from rank to rank.
//
// An Engine serves one node. It has Comms, which most callers use: Start begins
// a collective from a Program, Send and Recv exchange messages. Everything is
// driven by what arrives: a move of a plan is made by whichever goroutine
// brings the last thing that it waited for, so there is no goroutine per
// operation, and many operations may be in flight.
//
// An operation that fails takes its communicator with it: the other ranks are
// told, and all operations on it end with the reason. Operations never return
// while anything still uses their buffers.
//
// Peers may be ahead of this node: what they send for collectives it has not
// begun and communicators it has not made is kept. How much that can be is
// bounded for each peer: payloads by credit, offers, grants and probes by what
// link.Keep allows, and communicators by commsAheadMax. A peer that goes beyond
// loses its link, with an error that says so.
package engine

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/trace"
	"github.com/nexar-go/nexar/internal/wire"
)

// Config configures an Engine.
type Config struct {
	// EagerMax is the longest payload, in bytes, that is sent without a
	// grant. All nodes have the same. 0 means wire.PayloadMax, which is also
	// the most.
	EagerMax int
	// Log takes notes; nil discards them.
	Log *slog.Logger
}

// An Engine carries out the operations of one node. It is the Handler of the
// node's links.
type Engine struct {
	cfg Config

	mu     sync.RWMutex
	comms  map[uint64]*Comm
	ahead  map[int]int // comms that this node has not made yet, by peer
	ended  map[*link.Link]error
	doubts map[*link.Link]error // of links that others say have no use any more
	closed map[uint64]bool      // comms that were, the last of them

	closedIDs []uint64 // of closed, in order
	archive   trace.Ring[Trace]
	over      bool // by Close

	clock *trace.Clock

	active atomic.Int64  // collectives that run
	begun  atomic.Uint64 // operations, ever
	parked atomic.Bool   // the watch sleeps until it is woken
	wake   chan struct{}
	stop   chan struct{}
	wg     sync.WaitGroup
}

// New makes an Engine. Close it.
func New(cfg Config) *Engine {
	if cfg.EagerMax == 0 {
		cfg.EagerMax = wire.PayloadMax
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		cfg: cfg, comms: make(map[uint64]*Comm), ahead: make(map[int]int),
		ended: make(map[*link.Link]error), doubts: make(map[*link.Link]error), closed: make(map[uint64]bool),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), clock: trace.NewClock(),
	}
	e.wg.Go(func() { e.watch(time.NewTicker(watchTick)) })
	return e
}

// Close ends all operations with ErrClosed, as Comm.Close does, and waits for
// them.
func (e *Engine) Close() {
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.each(func(c *Comm) { c.stop(c.busy) })
	close(e.stop)
	e.wg.Wait()
}

// Lost ends every communicator that contains the peer of a link which has ended
// without a goodbye, those that are made later included.
func (e *Engine) Lost(l *link.Link, err error) {
	e.noteEnd(l, err)
	e.PeerFailed(l.Peer, err)
}

// Left ends the operations that need a peer that has left, and nothing else: others
// may end their part of the last collective earlier than this node does.
func (e *Engine) Left(l *link.Link) {
	e.noteEnd(l, nil)
	e.each(func(c *Comm) { c.peerLeft(l.Peer) })
}

// Failed ignores the report of a peer about a third node. Owners of an Engine that
// act on such reports handle them before the Engine does.
func (e *Engine) Failed(*link.Link, wire.Failed, string) {}

// Doubt ends every communicator that contains a peer which another node has lost.
// Communicators with it that are made later end at once, until Trust, even if the
// peer says goodbye: a communicator that the other node cannot join is of no use.
func (e *Engine) Doubt(l *link.Link, err error) {
	e.mu.Lock()
	e.doubts[l] = err
	e.mu.Unlock()
	e.PeerFailed(l.Peer, err)
}

// Trust takes Doubt back. Communicators that have ended stay so.
func (e *Engine) Trust(l *link.Link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.doubts, l)
}

// PeerFailed ends every communicator that contains a failed peer. Peer is the
// number of its links.
func (e *Engine) PeerFailed(peer int, err error) {
	e.each(func(c *Comm) { c.peerFailed(peer, err) })
}

// PeerRemoved ends every communicator that contains a peer which is not in the view
// any more, on all its ranks: those that have not adopted the view would wait
// for this one.
func (e *Engine) PeerRemoved(peer int, err error) {
	e.each(func(c *Comm) { c.peerRemoved(peer, err) })
}
