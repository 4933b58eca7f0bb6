package engine

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// effects are the actions that transitions of a communicator leave to be done without its
// lock. The zero value has none.
type effects struct {
	revoke   *wire.Revoke // to tell all other ranks, with text
	text     string
	linked   bool        // tell only ranks with links that are used
	messages p2p.Effects // of messages that fail
	frames   *exec.Frame // frames to drop
	calls    []func()    // called at once
	spawn    []func()    // called on a goroutine each
	ended    bool        // counted in Comm.unsettled
}

// orNew returns fx, or new effects if it is nil: most transitions have none.
func (fx *effects) orNew() *effects {
	if fx == nil {
		return new(effects)
	}
	return fx
}

// breaksProtocol ends a link because its peer breaks the protocol.
func (fx *effects) breaksProtocol(l *link.Link, err error) {
	fx.calls = append(fx.calls, func() { l.Fail(protocolError(err)) })
}

func protocolError(err error) error { return fmt.Errorf("engine: protocol error: %w", err) }

// update makes a transition under the lock, and carries its effects out.
func (c *Comm) update(transition func(fx *effects)) {
	fx := new(effects)
	c.mu.Lock()
	transition(fx)
	c.mu.Unlock()
	c.carryOut(fx)
}

// carryOut carries effects out. Only carryOut tells other ranks of the end of the communicator,
// and ends its operations and messages. Other ranks are told first: a caller that learns of the
// failure may close the node at once, and the goodbye must not arrive before the reason.
func (c *Comm) carryOut(fx *effects) {
	if fx != nil {
		c.perform(fx)
	}
}

func (c *Comm) perform(fx *effects) {
	if fx.revoke != nil {
		c.tell(func(l *link.Link) {
			if !fx.linked || l.IsUsed() {
				l.Revoke(*fx.revoke, fx.text)
			}
		})
	}
	c.messages.Perform(&fx.messages)
	if fx.frames != nil {
		c.drop(fx.frames)
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
	defer c.mu.Unlock()
	for f := list; f != nil; {
		next := f.Next
		f.ReleaseLocked()
		f = next
	}
}

// tell calls f for the link to each other rank.
func (c *Comm) tell(f func(l *link.Link)) {
	for rank, l := range c.linkTo {
		if rank != c.rank && l != nil {
			f(l)
		}
	}
}

// Spawn implements [p2p.Owner]. Engine.Close waits for f.
func (c *Comm) Spawn(f func()) { c.engine.wg.Go(f) }

// Go implements [p2p.Owner].
func (c *Comm) Go(f func()) {
	c.mu.Lock()
	ended := c.err != nil
	if !ended {
		c.Spawn(f) // under the lock: Engine.Close takes it before it waits
	}
	c.mu.Unlock()
	if ended {
		f()
	}
}
