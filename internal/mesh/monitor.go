package mesh

import (
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// soonAfter is the time that the seed has to make a view without a node that leaves, before this node dials its neighbors again. It is also the
// time between two attempts to release connections to former neighbors.
const soonAfter = 250 * time.Millisecond

// A monitor looks after the links of a Mesh on one goroutine: it checks those of watched peers, sends beats, asks for acknowledgements,
// connects neighbors, and closes connections that are idle or no longer needed.
type monitor struct {
	mesh              *Mesh
	interval, timeout time.Duration // HeartbeatInterval and SilenceMax
	soon              *time.Timer   // until neighbors are connected between two beats

	// Only one goroutine uses these fields.
	heard map[*link.Link]heartbeat // of the watched links
	last  time.Time                // of the last check
	late  time.Duration            // delay of recent checks, which decays
	idle  map[*link.Link]idleLink

	// processTime is that of a processTimer.
	processTime func(l *link.Link) (used time.Duration, ok bool)
	// breaks ends the connection of a silent link if it can be replaced, and reports whether it did. It is called once for a silence.
	breaks func(l *link.Link) bool

	// Mesh.mu guards these fields.
	slots    *watchSlots // of the adopted view; nil until they are needed
	soonAt   time.Time   // when soon ends
	releases bool        // the connections to former neighbors are being released
}

func newMonitor(m *Mesh, now time.Time) *monitor {
	w := &monitor{
		mesh: m, interval: m.cfg.HeartbeatInterval, timeout: SilenceMax(m.cfg.HeartbeatInterval, m.cfg.HeartbeatTimeout), soon: time.NewTimer(0),
		heard: make(map[*link.Link]heartbeat), last: now, processTime: processTime,
	}
	w.soon.Stop()
	return w
}

// run looks after the links until the Mesh closes. Beats are at multiples of the interval, so that the nodes of a process or of a host wake up
// together.
func (w *monitor) run() {
	beat, idle := new(time.Timer), new(time.Ticker)
	if w.timeout > 0 {
		beat = time.NewTimer(untilMultiple(w.interval))
		defer beat.Stop()
	}
	if limit := w.mesh.cfg.IdleTimeout; limit > 0 {
		idle = time.NewTicker(max(limit/4, time.Millisecond))
		defer idle.Stop()
	}
	w.last, w.breaks = time.Now(), w.probe
	for isEven := true; ; {
		select {
		case <-w.mesh.run.Done():
			return
		case <-w.soon.C:
			w.connectNeighbors()
		case <-idle.C:
			w.closeIdle(time.Now())
		case <-beat.C:
			beat.Reset(untilMultiple(w.interval))
			w.beat(isEven)
			isEven = !isEven
		}
	}
}

// untilMultiple returns the time until the next multiple of an interval of the clock, and at least a quarter
// of an interval: when the clock is slowed down, a timer fires before the multiple.
func untilMultiple(interval time.Duration) time.Duration {
	now := time.Now()
	d := now.Truncate(interval).Add(interval).Sub(now)
	if d < interval/4 {
		d += interval
	}
	return d
}

// beat checks and tends the links, and sends beats if it is the time for them.
func (w *monitor) beat(isTime bool) {
	d := w.duties(true)
	d.disconnectSurplus()
	ago, patience := w.check(d.watched, time.Now())
	for _, l := range d.all {
		l.Tend(ago, patience)
	}
	if isTime {
		for _, l := range d.watchers {
			l.Beat()
		}
	}
}

// connectNeighbors lets the links to the neighbors of the view connect, and releases connections to other nodes.
func (w *monitor) connectNeighbors() { w.duties(false).disconnectSurplus() }

// hurryLocked makes the monitor connect neighbors soon.
func (w *monitor) hurryLocked() {
	if now := time.Now(); !now.Before(w.soonAt) {
		w.soonAt = now.Add(soonAfter)
		w.soon.Reset(soonAfter)
	}
}

// duties are the links that a monitor handles.
type duties struct {
	surplus  []*link.Link // with connections to be released
	all      []*link.Link
	watched  []*link.Link // of peers that this node watches
	watchers []*link.Link // of peers that watch this node
}

func (d duties) disconnectSurplus() {
	for _, l := range d.surplus {
		l.Disconnect()
	}
}

// duties returns the links to handle, at a beat or else those to release alone. Peers that are not in the newest view of the seed are watched, too:
// such a peer may have left, and its goodbye to this node may be lost. Operations could wait for it for ever otherwise.
func (w *monitor) duties(isBeat bool) (d duties) {
	m := w.mesh
	if m.cfg.Relay != nil {
		m.updateNear()
	}
	newest := m.reach.newest()
	m.mu.Lock()
	defer m.mu.Unlock()
	d.surplus = w.surplusLocked()
	if !isBeat {
		return d
	}
	slots, isNewer := w.slotsLocked(), newest.Epoch > m.view.Epoch
	var stays map[membership.NodeID]bool
	if isNewer {
		stays = newest.Set()
	}
	for slot := range m.peers {
		p := &m.peers[slot]
		if slot == m.self || p.link == nil {
			continue
		}
		d.all = append(d.all, p.link)
		if p.State.IsGone() {
			continue
		}
		if p.isLinked() && slices.Contains(slots.watchers, slot) {
			d.watchers = append(d.watchers, p.link)
		}
		mayHaveLeft := isNewer && p.State.IsMember() && !stays[p.node.ID]
		switch {
		case !mayHaveLeft && !slices.Contains(slots.watched, slot) && !(p.isRelayed() && m.reach.isNear(p.node.ID)):
		case p.isLinked():
			d.watched = append(d.watched, p.link)
		case p.State.IsMember() && m.reach.canDial(p.node.ID):
			p.link.Need(link.Watching)
		}
	}
	return d
}

// surplusLocked lets the links to the neighbors of the view connect, and returns those with connections to be released. A neighbor that this node is
// linked to through relays, since it was none in an earlier view, gets a connection of its own. Former neighbors keep theirs until
// the neighbors relay for this node: frames would have no route meanwhile.
func (w *monitor) surplusLocked() (links []*link.Link) {
	m := w.mesh
	if m.cfg.Relay == nil || m.closing {
		return nil
	}
	var former []*link.Link
	lacksNeighbor := false
	for slot := range m.peers {
		p := &m.peers[slot]
		if slot == m.self || !p.State.IsMember() || p.State.IsGone() {
			continue
		}
		isNear := m.reach.isNear(p.node.ID)
		lacksNeighbor = lacksNeighbor || isNear && !p.relaying
		switch {
		case p.link == nil:
		case isNear:
			if p.link.Need(link.Watching); p.isRelayed() {
				links = append(links, p.link)
			}
		case p.isLinked() && !p.isRelayed():
			former = append(former, p.link)
		}
	}
	if w.releases = w.releases && len(former) > 0; !w.releases {
		return links
	}
	w.hurryLocked()
	if !lacksNeighbor {
		links = append(links, former...)
	}
	return links
}

// DisconnectFormer closes the connections to the nodes that are no neighbors in the adopted view, in a sparse topology with relays:
// to neighbors of an earlier view, or of the view that this node was invited to. No frame is lost: their links
// become pending, and the next frames go over relays. The caller knows that all nodes have adopted the view: a peer that
// still took this node for its neighbor would dial it again. DisconnectFormer does not block. Connections are released when this
// node has connections to all neighbors, unless it adopts another view before.
func (m *Mesh) DisconnectFormer() {
	m.mu.Lock()
	m.monitor.releases = true
	m.mu.Unlock()
	m.monitor.connectNeighbors()
}

// An idleLink is the traffic of a link, and the time since which it is the same.
type idleLink struct {
	heard, sent uint64
	since       time.Time
}

// closeIdle lets links without traffic for Config.IdleTimeout become pending again. It keeps those to peers that this node watches
// or that watch it, that share memory with it, or that may join.
func (w *monitor) closeIdle(now time.Time) {
	m := w.mesh
	m.mu.Lock()
	watches := m.watchRanksLocked()
	links := m.linksLocked(func(p *peer) bool {
		return p.isLinked() && p.route != nil && p.State.IsMember() && !p.State.IsGone() && !slices.Contains(watches, p.rank) && p.link.MemorySharer() == nil
	})
	m.mu.Unlock()
	next := make(map[*link.Link]idleLink)
	for _, l := range links {
		x := idleLink{heard: l.Heard(), sent: l.Traffic().Sent, since: now}
		if old, ok := w.idle[l]; ok && old.heard == x.heard && old.sent == x.sent {
			x.since = old.since
		}
		if now.Sub(x.since) < m.cfg.IdleTimeout || !l.CloseIdle() {
			next[l] = x
		}
	}
	w.idle = next
}
