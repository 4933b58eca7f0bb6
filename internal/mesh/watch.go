package mesh

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// WatchedMax is how many peers a node watches.
const WatchedMax = 6

// A pulse is what is known of the life of a watched peer.
type pulse struct {
	seat  int
	heard uint64
	at    time.Time // when heard last grew
}

// A vigil is the watch of a node over its peers in a view.
type vigil struct {
	epoch             uint64
	interval, timeout time.Duration
	pulses            []*pulse
	last              time.Time // of the last look
}

func (m *Mesh) newVigil(now time.Time) *vigil {
	view := m.newest()
	v := &vigil{epoch: view.Epoch, interval: m.cfg.HeartbeatInterval, timeout: m.cfg.HeartbeatTimeout, last: now}
	self, _ := view.Rank(m.cfg.Self)
	for _, r := range membership.Watched(view, self, WatchedMax) {
		m.mu.Lock()
		seat, _ := m.seatOf(view.Nodes[r].ID)
		m.mu.Unlock()
		v.pulses = append(v.pulses, &pulse{seat: seat, at: now})
	}
	return v
}

// watchRemoved adds the peers that are not in the newest view of the seed. One of them may
// have left, and its goodbye to this node been lost; if this node does not watch it, and
// waits for it, nothing else would tell.
func (m *Mesh) watchRemoved(v *vigil, now time.Time) {
	if m.cfg.Newest == nil {
		return
	}
	view := m.cfg.Newest()
	if view.Epoch <= v.epoch {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for seat, l := range m.links {
		_, in := view.Rank(m.nodes[seat].ID)
		watched := slices.ContainsFunc(v.pulses, func(p *pulse) bool { return p.seat == seat })
		if l != nil && !in && !watched && seat != m.self && !m.expected[seat] && !m.states[seat].IsGone() {
			v.pulses = append(v.pulses, &pulse{seat: seat, at: now})
		}
	}
}

// newest is the newest view.
func (m *Mesh) newest() membership.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

// watch asks the peers that this node watches for a sign of life whenever
// they have been silent for an interval, and ends the link of one that stays
// silent. A process that ends is noticed at once, by its transport; this is
// for hosts and networks that fall silent.
func (m *Mesh) watch(ctx context.Context) {
	if m.cfg.HeartbeatInterval <= 0 || m.cfg.HeartbeatTimeout <= 0 {
		return
	}
	tick := time.NewTicker(m.cfg.HeartbeatInterval)
	defer tick.Stop()
	v := m.newVigil(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if m.newest().Epoch != v.epoch {
				v = m.newVigil(time.Now()) // Others may have to be watched by now.
			}
			m.watchRemoved(v, time.Now())
			m.look(v, time.Now())
		}
	}
}

// look looks at all pulses.
func (m *Mesh) look(v *vigil, now time.Time) {
	if now.Sub(v.last) > max(2*v.interval, v.timeout/2) {
		// This node was itself stopped for a while, and accuses nobody.
		for _, p := range v.pulses {
			p.at = now
		}
	}
	v.last = now
	for _, p := range v.pulses {
		m.check(p, now, v.timeout)
	}
}

// check looks at one pulse.
func (m *Mesh) check(p *pulse, now time.Time, timeout time.Duration) {
	m.mu.Lock()
	gone, l := m.states[p.seat].IsGone(), m.links[p.seat]
	m.mu.Unlock()
	if gone || l == nil {
		return
	}
	if heard := l.Heard(); heard != p.heard {
		p.heard, p.at = heard, now
		return
	}
	if silent := now.Sub(p.at); silent >= timeout {
		l.Fail(fmt.Errorf("%w: silent for %v", transport.ErrPeerGone, silent.Round(time.Millisecond)))
		return
	}
	l.Ping()
}
