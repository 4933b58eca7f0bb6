package mesh

import (
	"cmp"
	"context"
	"errors"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

var (
	errNotPending = errors.New("mesh: the link is no longer pending")
	errReplaced   = errors.New("mesh: another connection was made since")
	errFruitless  = errors.New("mesh: the last connections over this path have delivered nothing")
	errUnproposed = errors.New("mesh: the peer has not proposed the connection in time")
)

// proposals make links of connections. They wait outside the loop of a mesh, which decides on the negotiations.
type proposals struct{ mesh *Mesh }

// connect gives the pending link to a peer, the node id, the connections of a route. If it fails, it closes them. The peer refuses a connection as long as the
// seed has not announced this node to it. If two nodes propose connections to each other at the same time, both use the proposal of the node with the
// larger NodeID. bulk is the path of the second connection, or nil. await waits for that connection on the accepting side.
func (ps *proposals) connect(ctx context.Context, r *route, slot int, id membership.NodeID, bulk *Path, await func(context.Context) (transport.Conn, error)) (err error) {
	m := ps.mesh
	var cfg link.Config
	if m.cfg.Relay != nil && !r.path.Relay {
		cfg.Relay = m.attach
	}
	if bulk != nil {
		cfg.BulkOver, cfg.BulkPipes, cfg.Await = bulk.name(), bulk.Pipes, await
	}
	p := m.peer(slot)
	l := p.link
	if l == nil || p.node.ID != id { // The slot belongs to another node by now.
		r.close()
		return errNotPending
	}
	settled := l.Settled() // of this connection: after its end the link has another channel
	ctx, r.giveUp = context.WithCancelCause(ctx)
	defer r.giveUp(nil)
	if r.isOwn() {
		cfg.Bulk = r.second
		if err = ps.begin(ctx, r, slot, l, nil); err == nil {
			err = l.Connect(ctx, r.conn, cfg)
		}
	} else {
		err = l.Accept(ctx, r.conn, cfg, func() error {
			settled = l.Settled() // An earlier connection that the peer has lost has ended by now.
			if r.unproposed != nil && !r.unproposed.Stop() {
				return errUnproposed
			}
			if err := ps.begin(ctx, r, slot, l, bulk); err != nil {
				return err
			}
			if !m.acceptor.take(r) {
				return errReplaced
			}
			return nil
		})
	}
	if err == nil {
		select {
		case <-settled: // From now on the route does not change.
		case <-l.Done():
		}
	}
	ps.end(r, slot, l, err == nil)
	if err != nil {
		r.close()
		return err
	}
	m.reportLink(slot)
	i := r.info(slot, id)
	m.log.Debug("linked a node", m.note(slot), "transport", i.Transport, "bulk", i.BulkTransport, "reason", i.Reason)
	return nil
}

// accept makes a link of an accepted connection beside other work. If the peer closes the connection before it begins a link, it has
// not failed.
func (ps *proposals) accept(r *route, slot int, bulk *Path) {
	m := ps.mesh
	count := func(n int) {
		if p := &m.peers[slot]; p.node.ID == r.peer {
			p.accepting += n
			m.changed.Send()
		}
	}
	m.loop.ask(func() { count(1) })
	m.wg.Go(func() {
		defer m.loop.ask(func() { count(-1) })
		defer m.acceptor.take(r)
		err := ps.connect(m.run, r, slot, r.peer, bulk, func(ctx context.Context) (transport.Conn, error) { return m.acceptor.takeSecond(ctx, r, bulk) })
		if err != nil {
			m.log.Debug("no link was made of a connection", m.note(slot), "path", r.path.name(), "err", err)
		}
	})
}

// begin waits until a route is the current proposal for the pending link in a slot. bulk is the path of the second connection of the peer, or nil.
func (ps *proposals) begin(ctx context.Context, r *route, slot int, l *link.Link, bulk *Path) error {
	m, c := ps.mesh, &candidate{route: r, link: l, turn: make(chan error, 1)}
	var repeated *route
	m.loop.ask(func() {
		p := &m.peers[slot]
		if !r.isOwn() && p.declines(r, bulk) {
			c.turn <- errFruitless
			return
		}
		if r.repeats(p.proposal) {
			repeated = p.proposal
		}
		p.waiting = append(p.waiting, c)
		ps.nextLocked(slot)
	})
	if repeated != nil && r.conn.Err() == nil {
		repeated.conn.Close()
	}
	if len(c.turn) > 0 { // It has not waited.
		return <-c.turn
	}
	select {
	case err := <-c.turn:
		return err
	case <-r.conn.Done():
		return cmp.Or(r.conn.Err(), transport.ErrPeerClosed)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// nextLocked makes candidates the current proposal of a slot while one can be, and limits the time for which that delays the others.
func (ps *proposals) nextLocked(slot int) {
	m, p := ps.mesh, &ps.mesh.peers[slot]
	for i := 0; i < len(p.waiting); {
		c, err := p.waiting[i], error(nil)
		switch {
		case p.link != c.link, !c.link.IsPending(), m.closing && !c.isOwn() && !c.link.IsNeeded():
			err = link.ErrConnected
		case p.proposal == nil, c.winsOver(p.proposal, m.cfg.Self, p.node.ID):
			p.proposal, i = c.route, 0
		default:
			i++
			continue
		}
		p.remove(c.route)
		c.turn <- err
	}
	for _, c := range p.waiting {
		c.waitFor(p.proposal, c.delayBy(p.proposal, p.broken != nil, m.cfg.answerTimeout()))
	}
}

// end undoes begin. If the link is connected, the route becomes that of the peer.
func (ps *proposals) end(r *route, slot int, l *link.Link, connected bool) {
	m := ps.mesh
	m.loop.ask(func() {
		p := &m.peers[slot]
		if p.remove(r); p.proposal == r {
			p.proposal = nil
		}
		switch {
		case !connected || p.link != l:
		case l.Conn() == r.conn:
			p.explain(r)
			p.route, p.broken, p.processEnded, p.declined = r, nil, nil, 0
			if r.isRelayed() {
				m.nextLocked(slot, membership.ConnectedOverRelays, 0)
			} else {
				m.nextLocked(slot, membership.Connected, 0)
			}
			if isOver, err := p.noteDelivery(r, l, m.cfg.HeartbeatTimeout); err != nil {
				l.Fail(err)
			} else if isOver {
				l.Disconnect()
			}
		default: // It has broken, and another one may be in use.
			p.noteFailure(r, r.conn.Err())
		}
		ps.nextLocked(slot)
		m.changed.Send()
	})
}
