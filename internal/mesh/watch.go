package mesh

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// WatchedMax is the number of peers that a node watches.
const WatchedMax = 6

// A heartbeat is the state of a watched peer.
type heartbeat struct {
	slot  int
	heard uint64    // Link.Heard
	at    time.Time // when heard last grew
}

// A watcher watches the peers of a node in one view.
type watcher struct {
	epoch             uint64
	interval, timeout time.Duration
	peers             []*heartbeat
	last              time.Time // of the last check
}

func (m *Mesh) newWatcher(now time.Time) *watcher {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := &watcher{epoch: m.view.Epoch, interval: m.cfg.HeartbeatInterval, timeout: m.cfg.HeartbeatTimeout, last: now}
	self, _ := m.view.Rank(m.cfg.Self)
	for _, r := range membership.Watched(m.view, self, WatchedMax) {
		slot, _ := m.slotOf(m.view.Nodes[r].ID)
		w.peers = append(w.peers, &heartbeat{slot: slot, at: now})
	}
	return w
}

// watchRemoved adds the peers that are not in the newest view of the seed. Such a peer may
// have left, and its goodbye to this node may be lost. If this node does not watch the peer
// but waits for it, nothing else would end the wait.
func (m *Mesh) watchRemoved(w *watcher, now time.Time) {
	if m.cfg.Newest == nil {
		return
	}
	view := m.cfg.Newest()
	if view.Epoch <= w.epoch {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot, p := range m.peers {
		_, in := view.Rank(p.node.ID)
		watched := slices.ContainsFunc(w.peers, func(h *heartbeat) bool { return h.slot == slot })
		if p.link != nil && !in && !watched && slot != m.self && !p.expected && !p.state.IsGone() {
			w.peers = append(w.peers, &heartbeat{slot: slot, at: now})
		}
	}
}

// watch pings the watched peers when they have been silent for an interval, and fails the
// link of a peer that stays silent. A transport reports the end of a process at once: this
// is for hosts and networks that fall silent.
func (m *Mesh) watch(ctx context.Context) {
	if m.cfg.HeartbeatInterval <= 0 || m.cfg.HeartbeatTimeout <= 0 {
		return
	}
	tick := time.NewTicker(m.cfg.HeartbeatInterval)
	defer tick.Stop()
	w := m.newWatcher(time.Now())
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.mu.Lock()
			epoch := m.view.Epoch
			m.mu.Unlock()
			now := time.Now()
			if epoch != w.epoch {
				w = m.newWatcher(now)
			}
			m.watchRemoved(w, now)
			m.checkAll(w, now)
		}
	}
}

// checkAll checks all watched peers.
func (m *Mesh) checkAll(w *watcher, now time.Time) {
	// After a long gap this node itself was stopped: no peer is to blame.
	stopped := now.Sub(w.last) > max(2*w.interval, w.timeout/2)
	w.last = now
	for _, h := range w.peers {
		if stopped {
			h.at = now
		}
		m.check(h, now, w.timeout)
	}
}

func (m *Mesh) check(h *heartbeat, now time.Time, timeout time.Duration) {
	p := m.peer(h.slot)
	if p.state.IsGone() || p.link == nil {
		return
	}
	silent := now.Sub(h.at)
	switch heard := p.link.Heard(); {
	case heard != h.heard:
		h.heard, h.at = heard, now
	case silent >= timeout:
		p.link.Fail(fmt.Errorf("%w: silent for %v", transport.ErrPeerGone, silent.Round(time.Millisecond)))
	default:
		p.link.Ping()
	}
}
