package mesh

import (
	"fmt"
	"maps"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

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

// A heartbeat is the last sign of life on a watched link. It lasts as long as the link has a connection: in a view that the peer is not watched
// in, the silence does not grow, and it goes on in the next view that it is watched in.
type heartbeat struct {
	connections int           // Link.Connections
	heard       uint64        // Link.Heard
	silence     time.Duration // since heard last grew, without the time in which the peer was not watched

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

// probe dials the peer of a silent link beside its connection, once in an interval and about brokenDials times at most. If the peer answers
// while the link hears nothing, the network works again, and probe breaks the link: QUIC and TCP wait longer and longer between repetitions of
// a packet, and the next one may come too late. A peer that has stopped does not answer.
func (w *monitor) probe(l *link.Link) bool {
	m := w.mesh
	p := m.peer(l.Peer)
	if p.link == l && p.isRelayed() && m.reach.isNear(p.node.ID) { // It gets a connection of its own.
		return l.Break(fmt.Errorf("%w over relays", transport.ErrStalled))
	}
	if p.link != l || p.route == nil || p.route.path.isLocal() || p.route.isRelayed() {
		return false
	}
	heard, began, c := l.Heard(), time.Now(), l.Conn()
	left := w.timeout / 2
	m.wg.Go(func() {
		if m.dialer.probe(m.run, &p, left, w.interval) && l.Heard() == heard && l.Conn() == c {
			l.Break(fmt.Errorf("%w: silent for at least %v, although the node answers a new connection", transport.ErrStalled, (left + time.Since(began)).Round(time.Millisecond)))
		}
	})
	return false
}

// starvedMax is the number of times that the patience with a silent peer grows if its process runs.
const starvedMax = 4

// watchSlots are the slots of the nodes that this node watches in a view, and of its watchers.
type watchSlots struct{ watched, watchers []int }

// slotsLocked returns the slots for the adopted view. They are computed once for each view.
func (w *monitor) slotsLocked() *watchSlots {
	m := w.mesh
	if w.slots != nil {
		return w.slots
	}
	slotsOf := func(ranks []int) (slots []int) {
		for _, rank := range ranks {
			slots = append(slots, m.slots[m.view.Nodes[rank].ID])
		}
		return slots
	}
	graph, self := m.graph, m.peers[m.self].rank
	w.slots = &watchSlots{watched: slotsOf(graph.Watched(m.view, self)), watchers: slotsOf(graph.Watchers(m.view, self))}
	return w.slots
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
func (w *monitor) isStarved(l *link.Link, h *heartbeat, now time.Time) bool {
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

// pingAfter returns the silence after which a watcher pings: when a beat is late, by half an interval since
// ticks are irregular, but early enough for an answer before the timeout.
func (w *monitor) pingAfter() time.Duration {
	return min(pingIntervals*w.interval-w.interval/2, w.timeout-2*w.interval)
}

// lateFactor is the number of goroutines that have to run, in both processes, before a beat is heard: the ticks of
// the sender, its writer, the reader, and the check itself.
const lateFactor = 4

// patience returns the silence after which a link fails, given the time since the last check. If the checks of this process are late, its host has
// more work than processors, and frames of peers are handled late as well, or sent late if a peer is on
// the same host. The timeout then grows, at most to twice its length. See Dadgar, Phillips, and Currey, "Lifeguard: Local
// health awareness for more accurate failure detection", DSN-W 2018.
func (w *monitor) patience(gap time.Duration) time.Duration {
	w.late = max(gap-w.interval-w.interval/4, w.late*3/4, 0)
	return w.timeout + min(lateFactor*w.late, w.timeout)
}

// check checks the links once. It returns the time since the last check, without that in which this process was suspended, and its patience.
// A connection that was not watched before gets the whole timeout.
func (w *monitor) check(links []*link.Link, now time.Time) (ago, patience time.Duration) {
	// After a long gap this process itself was suspended, and silence is no fault of a peer.
	gap := now.Sub(w.last)
	stopped := gap > max(2*w.interval, w.timeout/2)
	if stopped {
		gap, w.late = 0, 0
	}
	patience = w.patience(gap)
	for _, l := range links {
		h, known := w.heard[l]
		if h.silence += gap; stopped {
			h.silence, h.isProbed = 0, false
		}
		l.ReadLazy()
		if n := l.Connections(); n != h.connections { // It may have been made for another purpose in an earlier view.
			h.connections = n
			if c, is := l.Conn().(processWatcher); is {
				c.Watch()
			}
		}
		heard, limit := l.Heard(), patience
		if known && heard == h.heard && h.silence >= w.timeout/2 && w.isStarved(l, &h, now) {
			limit *= starvedMax
		}
		switch {
		case !known || heard != h.heard:
			h = heartbeat{connections: h.connections, heard: heard}
		case h.silence >= patience/2 && w.breaks != nil && !h.isProbed:
			h.isProbed = !w.breaks(l)
		case h.silence >= limit:
			l.Fail(fmt.Errorf("%w: silent for %v", transport.ErrPeerGone, h.silence.Round(time.Millisecond)))
		case h.silence >= w.pingAfter():
			l.Ping()
		}
		w.heard[l] = h
	}
	maps.DeleteFunc(w.heard, func(l *link.Link, _ heartbeat) bool { return l.IsPending() || l.IsOver() })
	w.last = now
	return gap, patience
}
