package mesh

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// goodbyeMax is the longest time that a goodbye over relays may take after the report that the node has left.
const goodbyeMax = 2 * time.Second

// nearCloseMax is the longest time for the goodbyes to neighbors after those over relays.
const nearCloseMax = 5 * time.Second

// relayCloseMin is the least of GoodbyeTimeout with a relay.
const relayCloseMin = 2 * time.Second

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

// Stats returns the counters of the relay.
func (r *Relay) Stats() relay.Stats { return r.endpoint.Stats() }

// Relayed returns the counters of the relay of this node, or nil without one.
func (m *Mesh) Relayed() *trace.Relayed {
	if m.cfg.Relay == nil {
		return nil
	}
	s := m.cfg.Relay.Stats()
	return &trace.Relayed{Forwarded: s.Forwarded, Lost: s.Dropped, Altered: s.Altered, Repeated: s.Repeated, Unexpected: s.Unexpected}
}

// loopMin is the largest number of hops after which frames take the routes of another view, in a world of more nodes.
const loopMin = 48

// relayRoutes are the routes of a node by NodeID. They implement forward.Routes.
type relayRoutes struct {
	tables atomic.Pointer[relayTables]
}

// relayTables are the routes of a node at one time. They are immutable.
type relayTables struct {
	// direct has the nodes with a link that carries relay frames. These may be neighbors of an earlier view.
	direct map[membership.NodeID]bool
	// list has the tables of the newest view, of the adopted one, and of the one before: nodes change views at different
	// times, and need goodbyes of nodes that leave. The first one with a route is used.
	list []*relayTable
	// all returns the routes over the links of all tables that begin with a link of this node. They are used if no table has
	// a route: the destination leaves, so the newest view does not have it, and the relays of the others have left.
	all func() map[membership.NodeID][]membership.NodeID
}

// A relayTable has the routes of a view. It is immutable.
type relayTable struct {
	view   membership.View
	ranks  map[membership.NodeID]int
	routes *topology.Routes
}

// NextHops implements forward.Routes. A link to the destination itself is the first choice, also to a neighbor of an
// earlier view. The only next hop to a node that is in no view is the node itself: it may have a link to this node while it
// joins.
//
// While the links of a new view come up, nodes do not know which links others lack, and a frame may go around in a circle.
// A frame that has made as many hops as there are nodes has been at a node twice. Then all nodes route it by the next older
// view, since the links of that view exist, and after as many hops again by the one before. If relays of that view have left, a path may
// need links of both views, and no table has it. In the end the frame walks at random over the links that exist.
func (r *relayRoutes) NextHops(destination membership.NodeID, made int, hops []membership.NodeID) []membership.NodeID {
	tables, known := r.tables.Load(), false
	if tables == nil {
		return append(hops, destination)
	}
	isDirect := tables.direct[destination]
	if isDirect {
		hops = append(hops, destination)
	}
	if !isDirect && made >= tables.walkFrom() {
		return tables.appendRandom(hops)
	}
	for i := range tables.list {
		t := tables.list[tables.first(made, i)]
		rank, in := t.ranks[destination]
		if in {
			hops = t.appendHops(hops, rank)
		}
		if known = known || in; len(hops) > 0 && (!isDirect || in) {
			break
		}
	}
	if !known && !isDirect {
		hops = append(hops, destination)
	}
	if len(hops) == 0 && tables.all != nil {
		hops = append(hops, tables.all()[destination]...)
	}
	return hops
}

// first returns the index of the i-th table to be used for a frame that has made some hops.
func (t *relayTables) first(made, i int) int { return (made/t.circle() + i) % len(t.list) }

// circle is the number of hops that a frame is routed by one table before the next one: the nodes of the largest view, since nodes that
// are not in the newest one relay as well.
func (t *relayTables) circle() int {
	n := 1
	for _, table := range t.list {
		n = max(n, table.view.Size())
	}
	return min(n, loopMin)
}

// walkFrom returns the number of hops after which a frame walks at random. No path in the oldest view has more hops than half of its
// nodes. In worlds with more than 42 nodes it is above the hop limit.
func (t *relayTables) walkFrom() int {
	if len(t.list) == 0 {
		return hopLimit
	}
	return len(t.list)*t.circle() - (len(t.list)-1)*t.circle()/2
}

// appendRandom appends the nodes with links that carry relay frames, in random order. A relay takes the first one that has not sent it
// the frame.
func (t *relayTables) appendRandom(hops []membership.NodeID) []membership.NodeID {
	hops = slices.AppendSeq(hops, maps.Keys(t.direct))
	rand.Shuffle(len(hops), func(i, j int) { hops[i], hops[j] = hops[j], hops[i] })
	return hops
}

func (t *relayTable) appendHops(hops []membership.NodeID, rank int) []membership.NodeID {
	route := t.routes.To(rank)
	for _, next := range []int{route.Next, route.Alternative} {
		if next != topology.None {
			hops = append(hops, t.view.Nodes[next].ID)
		}
	}
	return hops
}

// reroute computes the routes of the relay again: for a new view, after the end of a node, and when a link to a
// neighbor comes up or ends. Frames that may be lost are sent again.
func (m *Mesh) reroute() {
	if m.cfg.Relay == nil {
		return
	}
	newest := m.newest()
	m.mu.Lock()
	var tables []*relayTable
	for _, v := range []membership.View{newest, m.relayViewLocked(), m.before} {
		if _, in := v.Rank(m.cfg.Self); in && (len(tables) == 0 || v.Epoch < tables[len(tables)-1].view.Epoch) {
			tables = append(tables, m.relayTableLocked(v))
		}
	}
	all := &relayTables{list: tables, direct: make(map[membership.NodeID]bool)}
	stopped := make(map[membership.NodeID]bool)
	for slot := range m.peers {
		switch p := &m.peers[slot]; {
		case p.hasStopped():
			stopped[p.node.ID] = true
		case p.relaying:
			all.direct[p.node.ID] = true
		}
	}
	all.all = sync.OnceValue(func() map[membership.NodeID][]membership.NodeID {
		var views []membership.View
		for _, t := range tables {
			views = append(views, t.view)
		}
		return m.routesOverAll(views, all.direct, stopped)
	})
	m.cfg.Relay.routes.tables.Store(all)
	closing := m.closing
	m.mu.Unlock()
	m.cfg.Relay.endpoint.RoutesChanged()
	if !closing {
		return
	}
	for _, t := range tables {
		for _, n := range t.view.Nodes {
			if n.ID != m.cfg.Self && len(m.cfg.Relay.routes.NextHops(n.ID, 0, nil)) == 0 { // It cannot read a goodbye.
				m.cfg.Relay.endpoint.NodeGone(n.ID)
			}
		}
	}
}

// newest returns the newest view of the seed if it knows one.
func (m *Mesh) newest() (v membership.View) {
	if m.cfg.Newest != nil {
		v = m.cfg.Newest()
	}
	return v
}

func (m *Mesh) relayTableLocked(v membership.View) *relayTable {
	t := &relayTable{view: v, ranks: make(map[membership.NodeID]int, v.Size())}
	for rank, n := range v.Nodes {
		t.ranks[n.ID] = rank
	}
	t.routes = m.cfg.Topology.Graph(v.Size()).Routes(t.ranks[m.cfg.Self], m.brokenLocked(t))
	return t
}

// relayViewLocked returns the adopted view, without the nodes that join together with this one.
func (m *Mesh) relayViewLocked() membership.View {
	v := m.view
	if v.Epoch == m.cfg.View.Epoch {
		v.Nodes = v.Nodes[:min(m.world(), len(v.Nodes))]
	}
	return v
}

// brokenLocked returns the nodes of a table that forward nothing any more, and the neighbors without a link that can carry
// relay frames.
func (m *Mesh) brokenLocked(t *relayTable) (broken topology.Broken) {
	near := m.neighborsIn(t.view)
	for slot := range m.peers {
		p := &m.peers[slot]
		rank, in := t.ranks[p.node.ID]
		if !in || slot == m.self {
			continue
		}
		if p.hasStopped() {
			broken.Ranks = append(broken.Ranks, rank)
		} else if near.has(p.node.ID) && !p.relaying {
			broken.Links = append(broken.Links, rank)
		}
	}
	return broken
}

// hasStopped reports whether a peer forwards nothing any more, or perhaps does not.
func (p *peer) hasStopped() bool {
	return p.left || p.state.IsGone() && p.state != membership.PeerClosed && p.state != membership.PeerLeft || p.state == membership.PeerDoubted
}

// leaveRelayed applies the report that a node has left. This node has a link to it through relays. The goodbye has
// arrived before the report, unless these relays have left as well.
func (m *Mesh) leaveRelayed(slot int, e event) {
	m.mu.Lock()
	p := &m.peers[slot]
	l, isRelayed := p.link, p.node.ID == e.id && p.isRelayed()
	m.mu.Unlock()
	if !isRelayed {
		return
	}
	late := time.NewTimer(goodbyeMax)
	defer late.Stop()
	select {
	case <-l.Done():
		m.noteGone(slot, e.from)
	case <-late.C:
		m.apply(e) // a report over another link
		m.cfg.Relay.endpoint.NodeGone(e.id)
	case <-m.run.Done():
	}
}

// relayOver returns the function that gives the pipes for relay frames of a link over a path to the relay, or nil.
func (m *Mesh) relayOver(p *Path) func(*link.Link, transport.Sender, transport.Receiver) {
	if m.cfg.Relay == nil || p == nil || p.Relay {
		return nil
	}
	return m.attach
}

// attach lets the relay use a link. It blocks until the link is that of its peer, or has ended.
func (m *Mesh) attach(l *link.Link, s transport.Sender, r transport.Receiver) {
	id, ok := m.awaitCurrent(l)
	if ok {
		ok = m.cfg.Relay.endpoint.Attach(id, s, r) == nil
	}
	if !ok {
		s.Close()
		r.Close()
		return
	}
	if m.setRelaying(l, true) {
		m.reroute()
	}
}

// awaitCurrent waits until a link is in the slot of its peer, and returns the peer. ok is false if the link has
// ended before, or the Mesh.
func (m *Mesh) awaitCurrent(l *link.Link) (id membership.NodeID, ok bool) {
	for {
		m.mu.Lock()
		p, changed := &m.peers[l.Peer], m.changed
		id, ok = p.node.ID, p.link == l
		m.mu.Unlock()
		if ok {
			return id, !l.IsOver()
		}
		select {
		case <-changed:
		case <-l.Done():
			return id, false
		case <-m.run.Done():
			return id, false
		}
	}
}

// setRelaying notes whether the relay can use the link of a peer, and reports whether that is news.
func (m *Mesh) setRelaying(l *link.Link, relaying bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.peers[l.Peer]
	if p.link != l || p.relaying == relaying {
		return false
	}
	p.relaying = relaying
	close(m.changed)
	m.changed = make(chan struct{})
	return true
}

// unrelay notes that the connection of a link has ended. The relay itself notices it by the pipes.
func (m *Mesh) unrelay(l *link.Link) {
	if m.setRelaying(l, false) {
		m.reroute()
	}
}

// relayPass tells the relay the nodes that have failed or are no longer in the view.
func (m *Mesh) relayPass(pass []decision) {
	if m.cfg.Relay == nil || len(pass) == 0 {
		return
	}
	for _, d := range pass {
		if m.hasEnded(d.slot, d.id) {
			m.cfg.Relay.endpoint.NodeGone(d.id)
		}
	}
	m.reroute()
}

// hasEnded reports whether a peer has failed or is no longer in the view. A peer that has said goodbye may still
// acknowledge frames.
func (m *Mesh) hasEnded(slot int, id membership.NodeID) bool {
	p := m.peer(slot)
	return p.node.ID == id && (p.state == membership.PeerFailed || p.state == membership.PeerRemoved)
}

// isReachable reports whether a link to a next hop of the destination carries relay frames.
func (r *relayRoutes) isReachable(destination membership.NodeID) bool {
	tables := r.tables.Load()
	return tables == nil || slices.ContainsFunc(r.NextHops(destination, 0, nil), func(hop membership.NodeID) bool { return tables.direct[hop] })
}

// cutOffMax is the time that links of a new view have to give a neighbor a next hop again, if all relays to it have ended.
const cutOffMax = 250 * time.Millisecond

// linkNeighbors lets the links to the neighbors of the view connect. A neighbor that this node is linked to through relays,
// since it was none in an earlier view, gets a connection of its own as soon as its link is idle. If all relays to it have
// ended, the link will not become idle: the connection ends after cutOffMax.
func (m *Mesh) linkNeighbors() {
	if m.cfg.Relay == nil {
		return
	}
	m.updateNear()
	var relayed, cutOff []*link.Link
	isWaiting := false
	m.mu.Lock()
	for slot := range m.peers {
		p := &m.peers[slot]
		if slot == m.self || p.link == nil || p.expected || p.state.IsGone() || m.closing || !m.isNear(p.node.ID) {
			continue
		}
		switch {
		case p.link.IsPending():
			p.link.Need(link.Watching)
		case !p.isRelayed():
		case m.cfg.Relay.routes.isReachable(p.node.ID):
			p.cutOff = time.Time{}
			relayed = append(relayed, p.link)
		case p.cutOff.IsZero():
			p.cutOff, isWaiting = time.Now(), true
		case time.Since(p.cutOff) >= cutOffMax:
			p.cutOff = time.Time{}
			cutOff = append(cutOff, p.link)
		}
	}
	m.mu.Unlock()
	for _, l := range relayed {
		l.Detach()
	}
	for _, l := range cutOff {
		m.breakRelayed(l)
	}
	if isWaiting {
		time.AfterFunc(cutOffMax, m.linkNeighbors)
	}
}

// noteNewest is updateNear with a relay, when the world has formed.
func (m *Mesh) noteNewest() {
	m.mu.Lock()
	formed := m.formed && !m.closing
	m.mu.Unlock()
	if m.cfg.Relay != nil && formed {
		m.updateNear()
	}
}

// updateNear adds the neighbors in the newest view to those of the adopted one, and computes the routes again if the view is
// news: relays heal the paths of the adopted view without waiting for the program.
func (m *Mesh) updateNear() {
	newest := m.newest()
	m.mu.Lock()
	near := m.neighborsIn(m.relayViewLocked())
	isNews := newest.Epoch > m.view.Epoch && newest.Epoch > m.routed
	if newest.Epoch > m.view.Epoch {
		maps.Copy(near, m.neighborsIn(newest))
		m.setNearLocked(near)
	}
	m.routed = max(m.routed, newest.Epoch)
	m.mu.Unlock()
	if isNews {
		m.reroute()
	}
}

// isRelayed reports whether the link to the peer has a connection through relays.
func (p *peer) isRelayed() bool { return p.route.isRelayed() }

// breakRelayed ends the connection of a link to a neighbor that goes through relays, and reports whether there was one. The
// link is dialed again, without relays. If frames are lost, it is reset. l is nil if the peer has no link.
func (m *Mesh) breakRelayed(l *link.Link) bool {
	if m.cfg.Relay == nil || l == nil {
		return false
	}
	m.mu.Lock()
	var c transport.Conn
	if p := &m.peers[l.Peer]; p.link == l && p.isRelayed() && m.isNear(p.node.ID) {
		c = p.route.conn
	}
	m.mu.Unlock()
	if c == nil {
		return false
	}
	c.Close()
	return true
}

// GoodbyeTimeout returns the time that Close may need for goodbyes over relays, in addition to the goodbyes to neighbors: a
// relay may have died unnoticed.
func (m *Mesh) GoodbyeTimeout() time.Duration {
	if m.cfg.Relay == nil {
		return 0
	}
	return max(relayCloseMin, 2*m.cfg.HeartbeatTimeout)
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
		if known && !effects.Has(membership.SayGoodbye) { // It would not acknowledge the end of the connection, which takes 5 s.
			m.cfg.Relay.endpoint.NodeGone(m.node(l.Peer).ID)
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
func (m *Mesh) relayedLinks() (links []*link.Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot := range m.peers {
		if p := &m.peers[slot]; p.link != nil && (p.isRelayed() || p.isPending()) {
			links = append(links, p.link)
		}
	}
	return links
}
