package p2p

import (
	"context"
	"slices"

	"github.com/nexar-go/nexar/internal/p2p/match"
)

// A probe waits until a message has arrived that it could receive.
type probe struct {
	source int
	tag    int64
	begun  int64 // by the clock
	got    Received
	err    error
	ended  chan struct{} // gets one value at the end
}

// Probe waits for a message from source with tag, either of which may be
// Any, and leaves it to the receive that asks for it next. Nothing has
// happened if ctx ends before.
func (m *Messages) Probe(ctx context.Context, source int, tag int64) (Received, error) {
	p := &probe{source: source, tag: tag, ended: make(chan struct{}, 1)}
	m.mu.Lock()
	got, found, err := m.peekLocked(source, tag)
	if !found && err == nil {
		err = m.beginLocked(source)
	}
	if found || err != nil {
		m.mu.Unlock()
		return got, err
	}
	p.begun = m.stampLocked()
	m.probes = append(m.probes, p)
	m.mu.Unlock()
	if m.await(ctx, p.ended, source) {
		return p.got, p.err
	}
	m.mu.Lock()
	waiting := slices.Contains(m.probes, p)
	m.probes = slices.DeleteFunc(m.probes, func(o *probe) bool { return o == p })
	m.mu.Unlock()
	if waiting {
		return Received{}, context.Cause(ctx)
	}
	<-p.ended
	return p.got, p.err
}

// Peek is Probe without waiting: ok reports whether there is such a message.
func (m *Messages) Peek(source int, tag int64) (got Received, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peekLocked(source, tag)
}

func (m *Messages) peekLocked(source int, tag int64) (got Received, ok bool, err error) {
	if m.err != nil {
		return Received{}, false, m.err
	}
	if a, ok := m.matcher.Peek(source, tag); ok {
		return a.received(), true, nil
	}
	return Received{}, false, nil
}

// probedLocked ends the probes that a message, which is kept, is for.
func (m *Messages) probedLocked(fx *Effects, a *arrival) {
	m.endProbesLocked(fx, func(p *probe) bool {
		if !match.Takes(p.source, p.tag, a.source, a.tag) {
			return false
		}
		p.got = a.received()
		return true
	})
}

// endProbesLocked ends the probes in is, which has set their results.
func (m *Messages) endProbesLocked(fx *Effects, is func(p *probe) bool) {
	m.probes = slices.DeleteFunc(m.probes, func(p *probe) bool {
		if !is(p) {
			return false
		}
		fx.effects = append(fx.effects, effect{kind: wake, ended: p.ended})
		return true
	})
}
