package p2p

import (
	"context"
	"slices"

	"github.com/nexar-go/nexar/internal/p2p/match"
	"github.com/nexar-go/nexar/internal/poll"
)

// A probe is a call of Probe that waits for a message.
type probe struct {
	source int
	tag    int64
	begun  int64  // by Config.Clock
	number uint64 // see Wait.Number
	got    Received
	err    error
	done   poll.Signal // that the probe has ended
}

func (p *probe) matches(a *arrival) bool { return match.Takes(p.source, p.tag, a.source, a.tag) }

// Probe waits for a message from source with tag (both may be [Any]) and describes it. The next
// receive that matches the message gets it.
func (m *Messages) Probe(ctx context.Context, source int, tag int64) (Received, error) {
	m.mu.Lock()
	got, found, err := m.peekLocked(source, tag)
	if !found && err == nil {
		err = m.beginLocked(source)
	}
	if found || err != nil {
		m.mu.Unlock()
		return got, err
	}
	p := &probe{source: source, tag: tag, begun: m.stampLocked(), number: m.begun}
	m.probes = append(m.probes, p)
	m.mu.Unlock()
	if m.await(ctx, &p.done, source) {
		return p.got, p.err
	}
	m.mu.Lock()
	i := slices.Index(m.probes, p)
	if i >= 0 {
		m.probes = slices.Delete(m.probes, i, i+1)
	}
	m.mu.Unlock()
	if i >= 0 {
		return Received{}, m.cfg.Owner.Cause(ctx, Wait{Kind: Probed, Peer: source, Tag: tag}, p.begun)
	}
	p.done.Await(context.Background())
	return p.got, p.err
}

// Peek is Probe without waiting. It returns ok false if no such message has arrived.
func (m *Messages) Peek(source int, tag int64) (got Received, ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peekLocked(source, tag)
}

func (m *Messages) peekLocked(source int, tag int64) (got Received, ok bool, err error) {
	if m.err != nil {
		return Received{}, false, m.err
	}
	m.begun++
	a, ok := m.matcher.Peek(source, tag)
	if !ok {
		return Received{}, false, nil
	}
	return a.received(), true, nil
}

// endProbesLocked ends the probes for which end returns true. In that case end must have set the result of
// the probe.
func (m *Messages) endProbesLocked(fx *Effects, end func(p *probe) bool) {
	m.probes = slices.DeleteFunc(m.probes, func(p *probe) bool {
		if !end(p) {
			return false
		}
		e := fx.add()
		e.kind, e.done = wake, &p.done
		return true
	})
}
