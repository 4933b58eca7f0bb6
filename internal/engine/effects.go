package engine

import (
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// effects are what transitions of a communicator leave to be done without its lock.
// The zero value is nothing.
type effects struct {
	revoke     *wire.Revoke // to tell all other ranks, with text
	text       string
	failed     []*Op        // operations to take the buffers of
	messages   p2p.Effects  // of messages that fail
	frames     *exec.Frame  // to drop
	probes     []probe      // ranks to ask
	unexpected []*link.Link // links to end; see unexpectedPeer
	calls      []func()     // watchers, to be called at once
	spawn      []func()     // watchers, each on a goroutine of its own
	ended      bool         // counted in Comm.unsettled
}

// orNew returns fx, or new effects if it is nil: most operations have none.
func (fx *effects) orNew() *effects {
	if fx == nil {
		return new(effects)
	}
	return fx
}

// A probe asks a rank where it is, on behalf of an operation that waits.
type probe struct {
	rank int
	call wire.Call
}

// carryOut carries effects out. It is the only place from which a communicator tells
// other ranks of its end, and from which its operations and messages are failed. The
// other ranks are told first: a caller that hears of the failure may close the node at
// once, and its goodbye must not arrive before the reason.
func (c *Comm) carryOut(fx *effects) {
	if fx == nil {
		return
	}
	if fx.revoke != nil {
		c.tell(func(l *link.Link) { l.Revoke(*fx.revoke, fx.text) })
	}
	for _, op := range fx.failed {
		c.Spawn(op.abandon)
	}
	c.messages.Perform(&fx.messages)
	if fx.frames != nil {
		c.drop(fx.frames)
	}
	for _, p := range fx.probes {
		c.linkTo[p.rank].Probe(wire.Probe{Call: p.call})
	}
	for _, l := range fx.unexpected {
		c.unexpectedPeer(l)
	}
	for _, f := range fx.calls {
		f()
	}
	for _, f := range fx.spawn {
		c.Spawn(f)
	}
	if fx.ended {
		c.mu.Lock()
		c.unsettled--
		c.drained.Broadcast()
		c.mu.Unlock()
	}
}

// drop returns the credit of a list of frames.
func (c *Comm) drop(list *exec.Frame) {
	for f := list; f != nil; f = f.Next {
		f.ReturnCredit()
	}
	c.mu.Lock()
	for f := list; f != nil; {
		next := f.Next
		f.ReleaseLocked()
		f = next
	}
	c.mu.Unlock()
}

// tell calls f for the link to each other rank.
func (c *Comm) tell(f func(l *link.Link)) {
	for rank, l := range c.linkTo {
		if rank != c.rank && l != nil {
			f(l)
		}
	}
}

// Spawn implements [p2p.Owner]: Engine.Close waits for f.
func (c *Comm) Spawn(f func()) { c.engine.wg.Go(f) }

// Go implements [p2p.Owner].
func (c *Comm) Go(f func()) {
	c.mu.Lock()
	ended := c.err != nil
	if !ended {
		c.Spawn(f) // before Engine.Close, which takes the lock, waits for all
	}
	c.mu.Unlock()
	if ended {
		f()
	}
}
