package mesh

import (
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// WatchedMax is the number of peers that a node watches.
const WatchedMax = 6

const (
	// beatIntervals is the number of intervals between two beats of a node to its watchers.
	beatIntervals = 2
	// pingIntervals is the number of intervals of silence after which a watcher pings: a beat is late.
	pingIntervals = beatIntervals + 1
)

// WatchGraph returns the graph of watches of the views.
func (m *Mesh) WatchGraph() membership.WatchGraph { return m.graph }

// Watches reports whether this node watches the named peer or is watched by it, in the adopted or in the newest view. Each node may have
// adopted a view before the other. A node that is not in the view counts as watched.
func (m *Mesh) Watches(peer string) bool {
	newest, graph := m.reach.newest(), m.graph
	m.mu.Lock()
	v := m.view
	m.mu.Unlock()
	return graph.Watches(&v, m.cfg.Self, peer) || newest.Epoch > v.Epoch && graph.Watches(&newest, m.cfg.Self, peer)
}

// watchRanksLocked returns the ranks in the view that this node watches, and those that watch it.
func (m *Mesh) watchRanksLocked() []int { return m.graph.Ranks(m.view, m.peers[m.self].rank) }

// A heartbeat is the last sign of life on a watched link.
type heartbeat struct {
	heard uint64    // Link.Heard
	at    time.Time // when heard last grew

	isProbed bool // the peer is dialed beside the silent link

	// The processor time of the process of a silent peer on this host, and when a check found that it had grown.
	used    time.Duration
	isKnown bool // used
	ranAt   time.Time
}

// A processTimer is a conn to a process of this host. ProcessTime returns the processor time that the process has used.
type processTimer interface {
	ProcessTime() (used time.Duration, ok bool)
}

// A processWatcher is a conn that notices the end of the peer's process at once after Watch, as over QUIC. The transport calls
// Watch for the new connections that [Mesh.Watches] selects. Later calls have no effect.
type processWatcher interface{ Watch() }

// SilenceMax returns the silence after which the link to a peer fails, or 0 if none does. The last beat before an outage may be as old as
// two beats are apart, so that an outage counts for at least HeartbeatTimeout.
func SilenceMax(interval, timeout time.Duration) time.Duration {
	if interval <= 0 || timeout <= 0 {
		return 0
	}
	return timeout + beatIntervals*interval
}

func (cfg *Config) silenceMax() time.Duration {
	return SilenceMax(cfg.HeartbeatInterval, cfg.HeartbeatTimeout)
}

// probe dials the peer of a silent link beside its connection, once in an interval and about brokenDials times at most. If the peer answers
// while the link hears nothing, the network works again, and probe breaks the link: QUIC and TCP wait longer and longer between repetitions of
// a packet, and the next one may come too late. A peer that has stopped does not answer.
func (m *Mesh) probe(l *link.Link) bool {
	p := m.peer(l.Peer)
	if p.link == l && p.isRelayed() && m.reach.isNear(p.node.ID) { // It gets a connection of its own.
		return l.Break(fmt.Errorf("%w over relays", transport.ErrStalled))
	}
	if p.link != l || p.route == nil || p.route.path.isLocal() || p.route.isRelayed() {
		return false
	}
	heard, began, c := l.Heard(), time.Now(), l.Conn()
	left := m.cfg.silenceMax() / 2
	m.wg.Go(func() {
		if m.dialer.probe(m.run, &p, left, m.cfg.HeartbeatInterval) && l.Heard() == heard && l.Conn() == c {
			l.Break(fmt.Errorf("%w: silent for at least %v, although the node answers a new connection", transport.ErrStalled, (left + time.Since(began)).Round(time.Millisecond)))
		}
	})
	return false
}

// watchProcess watches the process of a peer beside its link. The connection may have been made for another purpose in an earlier view.
func watchProcess(l *link.Link) {
	if c, is := l.Conn().(processWatcher); is {
		c.Watch()
	}
}

// starvedMax is the number of times that the patience with a silent peer grows if its process runs.
const starvedMax = 4

// A watcher watches the links to some peers.
type watcher struct {
	interval, timeout time.Duration
	links, spare      map[*link.Link]heartbeat // spare is empty
	last              time.Time                // of the last check
	late              time.Duration            // delay of recent checks, which decays
	// processTime is that of a processTimer.
	processTime func(l *link.Link) (used time.Duration, ok bool)
	// breaks ends the connection of a silent link if it can be replaced, and reports whether it did. It is called once for a silence.
	breaks func(l *link.Link) bool
}

// watch sends beats to the watchers of this node, and fails the link of a watched peer that is silent for
// silenceMax. It pings a peer without beats: the peer may not know yet that this node
// watches it. In shared memory a beat wakes no goroutine of the watcher, which reads it when it checks. watch
// detects failed hosts and networks; a transport reports the end of a process at once.
//
// The ticks are at multiples of the interval, so that the nodes of a process or of a host wake up
// together.
func (m *Mesh) watch() {
	interval := m.cfg.HeartbeatInterval
	if interval <= 0 || m.cfg.HeartbeatTimeout <= 0 {
		return
	}
	tick := time.NewTimer(untilMultiple(interval))
	defer tick.Stop()
	w := newWatcher(&m.cfg, time.Now())
	w.breaks = m.probe
	for count := 0; ; count++ {
		select {
		case <-m.run.Done():
			return
		case <-tick.C:
			tick.Reset(untilMultiple(interval))
			m.linkNeighbors()
			ago, patience := w.check(m.watchedLinks(), time.Now())
			for _, l := range m.allLinks() {
				l.Tend(ago, patience)
			}
			if count%beatIntervals == 0 {
				for _, l := range m.watcherLinks() {
					l.Beat()
				}
			}
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

// watchSlots are the slots of the nodes that this node watches in a view, and of its watchers.
type watchSlots struct{ watched, watchers []int }

// watchSlotsLocked returns the slots for the adopted view. They are computed once for each view.
func (m *Mesh) watchSlotsLocked() *watchSlots {
	if m.watching != nil {
		return m.watching
	}
	slotsOf := func(ranks []int) (slots []int) {
		for _, rank := range ranks {
			slots = append(slots, m.slots[m.view.Nodes[rank].ID])
		}
		return slots
	}
	graph, self := m.graph, m.peers[m.self].rank
	m.watching = &watchSlots{watched: slotsOf(graph.Watched(m.view, self)), watchers: slotsOf(graph.Watchers(m.view, self))}
	return m.watching
}

// watcherLinks returns the links to the nodes that watch this node.
func (m *Mesh) watcherLinks() (links []*link.Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, slot := range m.watchSlotsLocked().watchers {
		if p := &m.peers[slot]; slot != m.self && p.isLinked() && !p.State.IsGone() {
			links = append(links, p.link)
		}
	}
	return links
}

func newWatcher(cfg *Config, now time.Time) *watcher {
	return &watcher{
		interval: cfg.HeartbeatInterval, timeout: cfg.silenceMax(), last: now, processTime: processTime,
		links: make(map[*link.Link]heartbeat), spare: make(map[*link.Link]heartbeat),
	}
}

func processTime(l *link.Link) (used time.Duration, ok bool) {
	if t, is := l.Conn().(processTimer); is {
		return t.ProcessTime()
	}
	return 0, false
}

// isStarved reports whether a silent peer is late because its host has more work than processors, not because it has
// stopped: its process exists, as its connection in shared memory does, and has got processor time recently. A process
// that was stopped gets none.
func (w *watcher) isStarved(l *link.Link, h *heartbeat, now time.Time) bool {
	used, ok := w.processTime(l)
	if !ok {
		return false
	}
	if h.isKnown && used > h.used {
		h.ranAt = now
	}
	h.used, h.isKnown = used, true
	return !h.ranAt.IsZero() && now.Sub(h.ranAt) <= 2*w.interval
}

// watchedLinks returns the links to the peers that this node watches in its view, and to those
// that are not in the newest view of the seed. Such a peer may have left, and its goodbye to
// this node may be lost. If it were not watched, operations could wait for it for ever. Other peers are looked at
// only if the topology is sparse or the seed has a newer view.
func (m *Mesh) watchedLinks() (links []*link.Link) {
	newest := m.reach.newest()
	m.mu.Lock()
	defer m.mu.Unlock()
	watched, isNewer := m.watchSlotsLocked().watched, newest.Epoch > m.view.Epoch
	watch := func(slot int) {
		switch p := &m.peers[slot]; {
		case p.link == nil || slot == m.self || p.State.IsGone():
		case !p.link.IsPending():
			links = append(links, p.link)
		case p.State.IsMember() && m.reach.canDial(p.node.ID):
			p.link.Need(link.Watching)
		}
	}
	if m.cfg.Topology.IsFull() && !isNewer {
		for _, slot := range watched {
			watch(slot)
		}
		return links
	}
	var stays map[membership.NodeID]bool
	if isNewer {
		stays = newest.Set()
	}
	for slot := range m.peers {
		p := &m.peers[slot]
		if slices.Contains(watched, slot) || p.isRelayed() && m.reach.isNear(p.node.ID) || isNewer && p.State.IsMember() && !stays[p.node.ID] {
			watch(slot)
		}
	}
	return links
}

// pingAfter returns the silence after which a watcher pings: when a beat is late, by half an interval since
// ticks are irregular, but early enough for an answer before the timeout.
func (w *watcher) pingAfter() time.Duration {
	return min(pingIntervals*w.interval-w.interval/2, w.timeout-2*w.interval)
}

// lateFactor is the number of goroutines that have to run, in both processes, before a beat is heard: the ticks of
// the sender, its writer, the reader, and the check itself.
const lateFactor = 4

// patience returns the silence after which a link fails, given the time since the last check. If the checks of this process are late, its host has
// more work than processors, and frames of peers are handled late as well, or sent late if a peer is on
// the same host. The timeout then grows, at most to twice its length. See Dadgar, Phillips, and Currey, "Lifeguard: Local
// health awareness for more accurate failure detection", DSN-W 2018.
func (w *watcher) patience(gap time.Duration) time.Duration {
	w.late = max(gap-w.interval-w.interval/4, w.late*3/4, 0)
	return w.timeout + min(lateFactor*w.late, w.timeout)
}

// allLinks returns the links to all peers.
func (m *Mesh) allLinks() []*link.Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.linksLocked(func(*peer) bool { return true })
}

// check checks the links once. It returns the time since the last check, without that in which this process was suspended, and its patience.
// A link that was not watched before gets the whole timeout.
func (w *watcher) check(links []*link.Link, now time.Time) (ago, patience time.Duration) {
	// After a long gap this process itself was suspended, and silence is no fault of a peer.
	gap := now.Sub(w.last)
	stopped := gap > max(2*w.interval, w.timeout/2)
	if stopped {
		gap, w.late = 0, 0
	}
	patience = w.patience(gap)
	watched := w.spare
	for _, l := range links {
		h, known := w.links[l]
		if stopped {
			h.at, h.isProbed = now, false
		}
		l.ReadLazy()
		if !known {
			watchProcess(l)
		}
		heard, silent, limit := l.Heard(), now.Sub(h.at), patience
		if known && heard == h.heard && silent >= w.timeout/2 && w.isStarved(l, &h, now) {
			limit *= starvedMax
		}
		switch {
		case !known || heard != h.heard:
			h = heartbeat{heard: heard, at: now}
		case silent >= patience/2 && w.breaks != nil && !h.isProbed:
			h.isProbed = !w.breaks(l)
		case silent >= limit:
			l.Fail(fmt.Errorf("%w: silent for %v", transport.ErrPeerGone, silent.Round(time.Millisecond)))
		case silent >= w.pingAfter():
			l.Ping()
		}
		watched[l] = h
	}
	clear(w.links)
	w.links, w.spare, w.last = watched, w.links, now
	return gap, patience
}
