package mesh

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// lost handles the end of a link without a goodbye. A peer that has itself
// ended its link lives and takes this node for failed. It tells the others so;
// that it has failed must not be heard from this node. The same goes for a
// connection that was closed on this side, as when its transport is closed
// under it: that says nothing of the peer.
func (m *Mesh) lost(l *link.Link, err error) {
	m.mu.Lock()
	m.part(l)
	m.mu.Unlock()
	if m.unlink(l) {
		m.engine.Forget(l)
		m.report(l.Peer)
		m.missed(l.Peer, err)
		return
	}
	verdict := errors.Is(err, transport.ErrPeerClosed) || errors.Is(err, transport.ErrClosed)
	m.nodeFailed(l.Peer, err, l, !verdict)
}

// Gone are the numbers of the links, as Link.Peer has them, of nodes that use no
// memory which they shared with this one any more: their processes have ended, or they
// had ended all that they did before they left. That others have been lost says
// nothing of the kind: they may just have been stopped.
func (m *Mesh) Gone() (seats []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for seat, ended := range m.parted {
		if ended() {
			m.parted[seat] = hasLeft // It need not be asked again.
			seats = append(seats, seat)
		}
	}
	return seats
}

// part notes that the link to a node has ended. It is called with the lock held.
func (m *Mesh) part(l *link.Link) {
	if s, ok := l.Conn().(transport.Sharer); ok && m.parted[l.Peer] == nil {
		m.parted[l.Peer] = s.PeerEnded()
	}
}

// hasLeft is what has become of a node that has said goodbye.
func hasLeft() bool { return true }

// missed says that this node has lost one to which it has linked itself, and which
// waits as this one does, or did. If it does not come again, one of them cannot be let
// in.
func (m *Mesh) missed(seat int, err error) {
	m.mu.Lock()
	waits := m.formed && m.expected[seat] && seat < m.self
	m.mu.Unlock()
	if waits && m.cfg.Lost != nil {
		m.cfg.Lost(m.node(seat).ID, err)
	}
}

// told handles the word of a peer that a node has failed.
func (m *Mesh) told(l *link.Link, f wire.Failed, text string) {
	m.mu.Lock()
	seat, ok := m.seatOf(member.NodeID(f.Node))
	stranger, by := m.expected[l.Peer] || m.expected[seat], m.ranks[l.Peer]
	m.mu.Unlock()
	if !ok || seat == m.self || stranger {
		return // It is not in the world, or knows nothing of it.
	}
	m.doubt(seat, f.Epoch, &reportedError{by: by, text: text}, l)
}

// doubt ends what waits for a rank of which another says that it has failed in a
// view, unless this node has a later one. The link to it stays: it may be that
// the two have lost only each other, and that it is in the next view.
func (m *Mesh) doubt(seat int, epoch uint64, err error, from *link.Link) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	known := m.failed[seat] || m.doubted[seat] || m.closing || epoch < m.view.Epoch
	if !known {
		m.doubted[seat] = true
	}
	links := slices.Clone(m.links)
	m.mu.Unlock()
	if known {
		return
	}
	m.say(seat, err)
	m.tell(links, seat, epoch, err, from)
	if l := links[seat]; l != nil {
		m.engine.Doubt(l, err)
	}
}

// A reportedError is the reason of a failure that another rank has noticed.
type reportedError struct {
	by   int
	text string
}

func (e *reportedError) Error() string { return fmt.Sprintf("%s (as rank %d reports)", e.text, e.by) }
func (e *reportedError) Unwrap() error { return transport.ErrPeerGone }

// reason is what to tell others of an error.
func reason(err error) string {
	if r, ok := errors.AsType[*reportedError](err); ok {
		return r.text
	}
	return err.Error()
}

// nodeFailed ends what waits for a rank, once. From is the link that this node
// knows it by. The others are told first: this node may leave as soon as an
// operation has failed, and must not be taken for the reason.
func (m *Mesh) nodeFailed(seat int, err error, from *link.Link, tell bool) {
	if l, known := m.noteFailed(seat, err, from, tell); !known && l != nil && l != from {
		l.Fail(err)
	}
}

// noteFailed is nodeFailed, except that it does not end the link that there is.
func (m *Mesh) noteFailed(seat int, err error, from *link.Link, tell bool) (l *link.Link, known bool) {
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	known, doubted := m.failed[seat] || m.closing, m.doubted[seat]
	m.failed[seat] = true
	links, epoch := slices.Clone(m.links), m.view.Epoch
	m.mu.Unlock()
	if known {
		return nil, true
	}
	if m.cfg.Lost != nil && from != nil {
		m.cfg.Lost(m.node(seat).ID, err)
	}
	switch {
	case doubted:
	case err == errRemoved:
		m.log.Info("a node is not in the world any more", m.note(seat))
	default:
		m.say(seat, err)
	}
	if tell && !doubted {
		m.tell(links, seat, epoch, err, from)
	}
	m.engine.PeerFailed(seat, err)
	return links[seat], false
}

// say tells of a failure on this node.
func (m *Mesh) say(seat int, err error) {
	m.log.Error("a node has failed", m.note(seat), "reason", err)
	if m.cfg.Failed != nil {
		m.mu.Lock()
		n, rank := m.nodes[seat], m.ranks[seat]
		m.mu.Unlock()
		m.cfg.Failed(rank, n, err)
	}
}

// tell tells all others that a rank has failed in a view, save for the one that
// said so.
func (m *Mesh) tell(links []*link.Link, failed int, epoch uint64, err error, from *link.Link) {
	f := wire.Failed{Node: m.node(failed).ID, Epoch: epoch}
	for seat, l := range links {
		if seat != failed && seat != m.self && l != nil && l != from {
			l.Failed(f, reason(err))
		}
	}
}

// left handles the goodbye of a peer, whose silence from now on is no failure. Where
// it has left because of a failure that this node has just noticed, too, that is told
// first.
func (m *Mesh) left(l *link.Link) {
	if l.Peer == m.self {
		return
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	m.mu.Lock()
	m.failed[l.Peer] = true
	m.parted[l.Peer] = hasLeft
	m.mu.Unlock()
	m.log.Info("a node has left", m.note(l.Peer))
	if m.cfg.Left != nil {
		m.cfg.Left(m.node(l.Peer).ID)
	}
}

func (m *Mesh) note(seat int) slog.Attr {
	m.mu.Lock()
	n, rank := m.nodes[seat], m.ranks[seat]
	m.mu.Unlock()
	return slog.Group("node", "rank", rank, "id", n.ID.String(), "addr", list(n.Addrs))
}
