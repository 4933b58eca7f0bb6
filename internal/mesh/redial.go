package mesh

import (
	"cmp"
	"errors"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

const (
	// answerMax is the longest wait for the refusal or the proposal of a peer; without it, this node dials or connects in another way. A share of
	// HeartbeatTimeout replaces answerMax if it is shorter.
	answerMax   = time.Second
	answerShare = 4
)

// answerTimeout returns answerMax, or the share of HeartbeatTimeout.
func (cfg *Config) answerTimeout() time.Duration {
	return min(answerMax, cmp.Or(max(cfg.HeartbeatTimeout/answerShare, 0), answerMax))
}

// demandTimeout returns the time after which a peer that cannot be dialed counts as lost, given as a number of heartbeat timeouts.
func (cfg *Config) demandTimeout(heartbeats int) time.Duration {
	return min(dialTimeout, cmp.Or(time.Duration(heartbeats)*max(cfg.HeartbeatTimeout, 0), dialTimeout))
}

// linkDetached handles the end of the connection of a link, which is pending now; see [link.Config]. It stays so if this side has released the
// connection, or both agreed that it is idle. A link that broke is dialed again at once. It ends if the peer shares memory with this node, counts as gone, or only has silent paths:
// their connections end after a silence, or with the process of the peer.
func (m *Mesh) linkDetached(l *link.Link, memory transport.MemorySharer, purpose link.Purpose, err error) {
	m.loop.post(func() (effects func()) {
		p := &m.peers[l.Peer]
		switch {
		case l.IsOver(): // It takes the lock that the caller of linkDetached holds until the link is pending: Need below counts.
			return nil
		case p.link != l || l.Peer == m.self:
			l.FailPending(cmp.Or(err, errOut))
			return nil
		}
		effects = m.setRelayingLocked(l, false)
		kind := endOfConn(err)
		follows := m.nextLocked(l.Peer, kind, membership.SharesMemory.If(memory != nil)|membership.RefusesDials.If(m.reach.hasRefusing(p.node))|
			membership.WasNeeded.If(purpose != link.NoPurpose))
		switch {
		case follows.Has(membership.EndLink):
			if memory != nil && p.processEnded == nil {
				p.processEnded = memory.PeerEnded()
			}
			l.FailPending(err)
			return effects
		case kind == membership.ConnReleased: // Frames may wait on either side, also if this node leaves, or the peer has adopted a view before it.
			if p.Conn.IsBroken() {
				p.broken = errNear
			}
			if p.route = nil; !p.isFruitless() { // This side may have closed it to leave the second connection out.
				p.failed = nil
			}
			return effects
		}
		p.noteFailure(p.route, err)
		p.broken, p.route = err, nil
		m.log.Info("a link to a node broke and is dialed again", describe(p.rank, *p.node), "reason", err)
		if follows.Has(membership.Redial) {
			l.Need(cmp.Or(purpose, link.Again))
		}
		return effects
	})
}

// endOfConn returns the event for the end of a connection. err is nil if this side has released it, or both agreed that it is idle.
func endOfConn(err error) membership.PeerEvent {
	switch {
	case err == nil:
		return membership.ConnReleased
	case errors.Is(err, transport.ErrPeerClosed), errors.Is(err, link.ErrLost):
		return membership.ConnClosed
	case errors.Is(err, transport.ErrStalled):
		return membership.ConnStalled
	}
	return membership.ConnBroke
}
