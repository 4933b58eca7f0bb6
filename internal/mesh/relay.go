package mesh

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// goodbyeMax is the longest time that a goodbye over relays may take after the report that the node has left, and the least of
// GoodbyeTimeout with a relay.
const goodbyeMax = 2 * time.Second

// nearCloseMax is the longest time for the goodbyes to neighbors after those over relays.
const nearCloseMax = 5 * time.Second

// hopLimit is the maximum number of hops of a relay frame.
const hopLimit = relay.HopLimitMax

// A Relay connects this node to the nodes that are not its neighbors. It has the transport for a [Path] with Relay,
// and outlives a Mesh.
type Relay struct {
	endpoint *relay.Endpoint
	routes   *relayRoutes
}

// A RelayConfig has the credentials of the node. NewRelay sets Routes and HopLimit.
type RelayConfig = relay.Config

// A Tamper is RelayConfig.Tamper.
type Tamper = relay.Tamper

// NewRelay returns a relay. The [Mesh] with the relay in its Config gives it routes and links.
func NewRelay(cfg RelayConfig) (*Relay, error) {
	r := &Relay{routes: new(relayRoutes)}
	cfg.Routes, cfg.HopLimit = r.routes, hopLimit
	var err error
	r.endpoint, err = relay.New(cfg)
	return r, err
}

// Path returns the path over relays.
func (r *Relay) Path() Path { return Path{Transport: r.endpoint, Relay: true, Encrypted: true} }

// Relayed returns the counters of the relay of this node, or nil without one.
func (m *Mesh) Relayed() *trace.Relayed {
	if m.cfg.Relay == nil {
		return nil
	}
	s := m.cfg.Relay.endpoint.Stats()
	return &trace.Relayed{Forwarded: s.Forwarded, Lost: s.Dropped}
}

// awaitGoodbye waits after the report that a node has left. This node has a link to it through relays. The goodbye has
// arrived before the report, unless these relays have left as well.
func (m *Mesh) awaitGoodbye(l *link.Link, e event) {
	late := time.NewTimer(goodbyeMax)
	defer late.Stop()
	select {
	case <-l.Done():
		e.facts = membership.LinkOver
	case <-late.C:
		e.kind = membership.NoGoodbye // a report over another link
		m.cfg.Relay.endpoint.NodeGone(e.id)
	case <-m.run.Done():
		return
	}
	m.loop.post(func() func() { return m.decideOnLocked(e) })
}

// attach lets the relay use a link, unless another one has replaced it.
func (m *Mesh) attach(l *link.Link, s transport.Sender, r transport.Receiver) {
	p := m.peer(l.Peer)
	if p.link != l || l.IsOver() || m.cfg.Relay.endpoint.Attach(p.node.ID, s, r, func(err error) { m.relayViolated(l, err) }) != nil {
		s.Close()
		r.Close()
		return
	}
	m.loop.post(func() func() { return m.setRelayingLocked(l, true) })
}

// relayViolated ends the link to a neighbor that has violated the protocol of relays.
func (m *Mesh) relayViolated(l *link.Link, err error) {
	p := m.peer(l.Peer)
	m.log.Error("a neighbor has violated the protocol of relays", m.note(l.Peer), "err", err)
	l.Fail(fmt.Errorf("mesh: rank %d (node %v): %w", p.rank, p.node.ID, err))
}

// setRelayingLocked notes whether the relay can use the link of a peer. If that is news, it returns the function that computes the routes again.
// The relay itself notices the end of a connection by the pipes.
func (m *Mesh) setRelayingLocked(l *link.Link, relaying bool) (effects func()) {
	p := &m.peers[l.Peer]
	if p.link != l || p.relaying == relaying {
		return nil
	}
	p.relaying = relaying
	m.changed.Send()
	return m.reroute
}

// relayPass tells the relay the nodes that have failed or are no longer in the view.
func (m *Mesh) relayPass(gone []membership.NodeID) {
	if m.cfg.Relay == nil {
		return
	}
	for _, id := range gone {
		m.cfg.Relay.endpoint.NodeGone(id)
	}
	m.reroute()
}

// hasEndedLocked reports whether a peer has failed or is no longer in the view. A peer that has said goodbye may still
// acknowledge frames.
func (m *Mesh) hasEndedLocked(slot int, id membership.NodeID) bool {
	p := &m.peers[slot]
	return p.node.ID == id && (p.State == membership.PeerFailed || p.State == membership.PeerRemoved)
}

// updateNear adds the neighbors in the newest view to those of the adopted one, and computes the routes again if the view is
// news: relays heal the paths of the adopted view without waiting for the program.
func (m *Mesh) updateNear() {
	newest, isNews := m.reach.newest(), false
	m.loop.ask(func() {
		if newest.Epoch > m.view.Epoch {
			near := m.reach.neighborsIn(m.relayViewLocked())
			maps.Copy(near, m.reach.neighborsIn(newest))
			m.reach.setNear(near)
			isNews = newest.Epoch > m.routed
		}
		m.routed = max(m.routed, newest.Epoch)
	})
	if isNews {
		m.reroute()
	}
}

// isRelayed reports whether the link to the peer has a connection through relays.
func (p *peer) isRelayed() bool { return p.route.isRelayed() }

// GoodbyeTimeout returns the time that Close may need for goodbyes over relays, in addition to the goodbyes to neighbors: a
// relay may have died unnoticed.
func (m *Mesh) GoodbyeTimeout() time.Duration {
	if m.cfg.Relay == nil {
		return 0
	}
	return max(goodbyeMax, 2*m.cfg.HeartbeatTimeout)
}

// endRelayed ends the links through relays, and removes them from links, while the links to neighbors still work. It waits
// for goodbyes as long as there is a neighbor, and for GoodbyeTimeout at most. Then it relays for others as long, if they need it.
func (m *Mesh) endRelayed(ctx context.Context, links map[*link.Link]membership.PeerEffects, report func(), sayGoodbye func(context.Context, *link.Link)) {
	ctx, cancel := context.WithTimeout(ctx, m.GoodbyeTimeout())
	defer cancel()
	m.wg.Go(func() {
		defer cancel()
		_ = m.awaitLinks(ctx, func(_ int, p *peer) bool { return p.relaying }, nil)
	})
	var ends sync.WaitGroup
	for _, l := range m.relayedLinks() {
		effects, known := links[l]
		delete(links, l)
		if known && !effects.Has(membership.SayGoodbye) { // It would not acknowledge the end of the connection: 5 s are saved.
			m.cfg.Relay.endpoint.NodeGone(m.peer(l.Peer).node.ID)
		}
		if known && effects.Has(membership.SayGoodbye) {
			ends.Go(func() { sayGoodbye(ctx, l) })
		} else {
			ends.Go(l.Abort)
		}
	}
	ends.Wait()
	m.cfg.Relay.endpoint.Flush(ctx)
	report()
	m.announceDelivered()
	m.relayForOthers(ctx)
}

// relayedLinks returns the links with a connection through relays, or without one: there is no other that they could still get.
func (m *Mesh) relayedLinks() []*link.Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.linksLocked(func(p *peer) bool { return p.isRelayed() || p.isPending() })
}
