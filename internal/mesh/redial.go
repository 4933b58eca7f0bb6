package mesh

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// answerMax is the longest wait for the refusal or the proposal of a peer; without it, this node dials or connects in another way. A share of
	// HeartbeatTimeout replaces answerMax if it is shorter.
	answerMax   = time.Second
	answerShare = 4
	// handshakes is the number of broken handshakes with an address that count as a refusal.
	handshakes = 3
)

// answerTimeout returns answerMax, or the share of HeartbeatTimeout.
func (m *Mesh) answerTimeout() time.Duration {
	if d := m.cfg.HeartbeatTimeout / answerShare; d > 0 {
		return min(d, answerMax)
	}
	return answerMax
}

// linkDetached decides whether a link becomes pending again after the end of its connection; see
// [link.Config]. It does if both sides have closed the connection. A link that broke does if it was pending before, and is dialed again
// at once, unless the peer shares memory with this node, counts as gone, or has no path that tells whether its process has ended.
func (m *Mesh) linkDetached(l *link.Link, err error) (again link.Purpose, keep bool) {
	defer m.unrelay(l)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.peers[l.Peer]
	isRelayed := p.isRelayed()
	switch {
	case p.link != l || l.Peer == m.self || !m.formed:
		return link.NoPurpose, false
	case err == nil: // Frames may wait on either side, also if this node leaves, or the peer has adopted a view before it.
		p.route, p.onDemand = nil, true
		return link.NoPurpose, true
	case m.closing || p.expected || !p.onDemand:
		return link.NoPurpose, false
	case l.MemorySharer() != nil || p.state.IsGone() || p.state == membership.PeerDoubted || !isRelayed && !m.refuses(*p.node):
		return link.NoPurpose, false
	}
	p.broken, p.brokenDirect, p.route = err, !isRelayed, nil
	if again = l.Purpose(); again == link.NoPurpose {
		again = link.Again
	}
	m.log.Info("a link to a node broke and is dialed again", describe(p.rank, *p.node), "reason", err)
	return again, true
}

// reaches reports whether a path reaches a node from this host.
func (m *Mesh) reaches(p *Path, n membership.Node) bool {
	here := m.cfg.host()
	return p.isOf(n) && (!p.isLocal() || here != "" && here == n.Host)
}

// host returns the host of this node.
func (cfg *Config) host() string {
	rank, _ := cfg.View.Rank(cfg.Self)
	return cfg.View.Nodes[rank].Host
}

// refuses reports whether this node has a path to another one with Path.Refuses.
func (m *Mesh) refuses(n membership.Node) bool {
	for i := range m.cfg.Paths {
		if p := &m.cfg.Paths[i]; p.Refuses && m.reaches(p, n) {
			return true
		}
	}
	return false
}

// refusal returns an error if no process of a node listens any more, or the process refuses this node: all its addresses on the
// first path with Path.Refuses refuse a connection. A handshake that breaks, like the connection before it, is no refusal, and neither is an error
// of this host or of the network.
func (m *Mesh) refusal(ctx context.Context, n membership.Node) (reason error) {
	for i := range m.cfg.Paths {
		p := &m.cfg.Paths[i]
		if !p.Refuses || !m.reaches(p, n) {
			continue
		}
		reason = errors.New("it has no address")
		for _, addr := range m.addrs(p, n) {
			for range handshakes {
				c, err := p.Transport.Dial(ctx, addr, n.ID.String())
				if err == nil {
					c.Close()
					return nil
				}
				if ctx.Err() != nil || isUnanswered(err) {
					return nil //nolint:nilerr // It does not answer, which is no refusal.
				}
				if reason = err; !isBrokenHandshake(err) {
					break
				}
			}
		}
		return reason
	}
	return nil
}

// isUnanswered reports whether a dial has failed without an answer from the address: it cannot be reached, or this host has no files or
// ports left.
func isUnanswered(err error) bool {
	const windowsRefused = syscall.Errno(10061) // of Winsock
	number, ok := errors.AsType[syscall.Errno](err)
	return ok && number != syscall.ECONNREFUSED && number != windowsRefused && !isReset(err)
}

// isReset reports whether the other side has ended a connection after its beginning.
func isReset(err error) bool {
	const windowsReset = syscall.Errno(10054) // of Winsock
	number, _ := errors.AsType[syscall.Errno](err)
	return number == syscall.ECONNRESET || number == syscall.EPIPE || number == windowsReset
}

// isBrokenHandshake reports whether a dial has failed after the address has answered: the process may end, or the network
// breaks connections.
func isBrokenHandshake(err error) bool {
	op, _ := errors.AsType[*net.OpError](err)
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || op != nil && (op.Op == "read" || op.Op == "write") || isReset(err)
}

// An idleLink is the traffic of a link, and the time since which it is the same.
type idleLink struct {
	heard, sent uint64
	since       time.Time
}

// closeIdle lets links without traffic for Config.IdleTimeout become pending again, until the Mesh closes.
func (m *Mesh) closeIdle() {
	tick := time.NewTicker(max(m.cfg.IdleTimeout/4, time.Millisecond))
	defer tick.Stop()
	known := make(map[*link.Link]idleLink)
	for {
		select {
		case <-m.run.Done():
			return
		case <-tick.C:
		}
		now, next := time.Now(), make(map[*link.Link]idleLink)
		for _, l := range m.unwatchedLinks() {
			x := idleLink{heard: l.Heard(), sent: l.Traffic().Sent, since: now}
			if old, ok := known[l]; ok && old.heard == x.heard && old.sent == x.sent {
				x.since = old.since
			}
			if now.Sub(x.since) < m.cfg.IdleTimeout || !l.Detach() {
				next[l] = x
			}
		}
		known = next
	}
}

// unwatchedLinks returns the links that may be closed while they are idle: not to peers that this node
// watches or that watch it, nor to those that share memory with it or may join.
func (m *Mesh) unwatchedLinks() []*link.Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	watches := m.watchRanksLocked()
	return m.linksLocked(func(p *peer) bool {
		return p.isLinked() && p.route != nil && !p.expected && !p.state.IsGone() && !slices.Contains(watches, p.rank) && p.link.MemorySharer() == nil
	})
}
