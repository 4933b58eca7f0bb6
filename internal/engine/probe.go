package engine

import (
	"context"
	"slices"

	"github.com/nexar-go/nexar/internal/p2p"
)

// A probe waits until a message has come that it could receive.
type probe struct {
	source int
	tag    int64
	begun  int64 // by the clock of the engine
	got    Received
	err    error
	ended  chan struct{} // gets one value at the end
}

// Probe waits for a message from source with tag, either of which may be
// p2p.Any, and leaves it to the receive that asks for it next. Nothing has
// happened if ctx ends before.
func (c *Comm) Probe(ctx context.Context, source int, tag int64) (Received, error) {
	p := &probe{source: source, tag: tag, ended: make(chan struct{}, 1)}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return Received{}, &EndedError{c.err}
	}
	switch a, ok := c.messages.Peek(source, tag); {
	case ok:
		defer c.mu.Unlock()
		return a.received(), nil
	case c.hasLeft(source):
		defer c.mu.Unlock()
		return Received{}, leftError(source)
	case source == p2p.Any && c.alone():
		defer c.mu.Unlock()
		return Received{}, leftError(c.lastLeft)
	}
	p.begun = c.stamp()
	c.probes = append(c.probes, p)
	c.mu.Unlock()
	if c.awaitRank(ctx, p.ended, source) {
		return p.got, p.err
	}
	c.mu.Lock()
	waiting := slices.Contains(c.probes, p)
	c.probes = slices.DeleteFunc(c.probes, func(o *probe) bool { return o == p })
	c.mu.Unlock()
	if waiting {
		return Received{}, context.Cause(ctx)
	}
	<-p.ended
	return p.got, p.err
}

// Peek is Probe without waiting: ok reports whether there is such a message.
func (c *Comm) Peek(source int, tag int64) (got Received, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return Received{}, false, &EndedError{c.err}
	}
	a, ok := c.messages.Peek(source, tag)
	if !ok {
		return Received{}, false, nil
	}
	return a.received(), true, nil
}

func (a *arrival) received() Received {
	return Received{Source: a.source, Tag: a.tag, Bytes: int(a.size)}
}

// probed ends the probes that a message, which is kept, is for. It is called
// with the lock held.
func (c *Comm) probed(a *arrival) {
	c.endProbes(func(p *probe) bool {
		is := (p.source == p2p.Any || p.source == a.source) && (p.tag == p2p.Any || p.tag == a.tag)
		if is {
			p.got = a.received()
		}
		return is
	})
}

// failProbes ends the probes of the sources in is, as failReceives does.
func (c *Comm) failProbes(err error, is func(source int) bool) {
	c.endProbes(func(p *probe) bool {
		if !is(p.source) {
			return false
		}
		p.err = err
		return true
	})
}

func (c *Comm) endProbes(is func(p *probe) bool) {
	if len(c.probes) == 0 {
		return
	}
	c.probes = slices.DeleteFunc(c.probes, func(p *probe) bool {
		over := is(p)
		if over {
			p.ended <- struct{}{}
		}
		return over
	})
}

func (c *Comm) notify() {
	if f := c.arrived.Load(); f != nil {
		(*f)()
	}
}
