package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// serve serves a connection until it ends.
func (s *Server) serve(c *handshake.Conn) {
	defer c.Close()
	stop := context.AfterFunc(s.ctx, func() { c.Close() })
	defer stop()
	node, err := s.answer(c)
	switch {
	case err != nil:
		s.refuse(c, err)
	case node != nil:
		stop() // Close sends its last messages to nodes.
		s.serveNode(node)
	}
}

// answer authenticates a client and answers its request. It returns the connection of a node
// that it has admitted.
func (s *Server) answer(c *handshake.Conn) (*nodeConn, error) {
	var cluster string
	name := func() string { cluster = s.cluster(); return cluster }
	if err := c.Answer(s.ctx, time.Now().Add(s.lim.Hello), s.cfg.Token, name); err != nil {
		return nil, err
	}
	m, err := c.Read(time.Now().Add(s.lim.Step), wire.JoinBytesMax)
	if err != nil {
		return nil, handshake.ReadError(err)
	}
	if peer, ok := m.(wire.JoinSeedHello); ok {
		return nil, s.peers.serve(c, peer)
	}
	if leader, here := s.findLeader(); !here || cluster == "" { // A client refuses a certificate of a cluster with another name.
		c.WriteLast(s.ctx, s.lim.Linger, wire.JoinRedirect{Leader: leader})
		return nil, nil
	}
	switch m := m.(type) {
	case wire.JoinStatusRequest:
		return nil, s.serveStatus(c, m)
	case wire.JoinRequest:
		return s.admit(c, m)
	}
	return nil, handshake.Refuse(wire.RefusedMalformed, "sent a %T in place of a request", m)
}

// admit signs the certificate of an authenticated node, and registers the node.
func (s *Server) admit(c *handshake.Conn, req wire.JoinRequest) (*nodeConn, error) {
	observed, authority := c.RemoteAddr(), s.authority()
	cert, id, err := authority.Sign(req.CSR, s.cfg.CertificateLife)
	if err != nil {
		return nil, handshake.Refuse(wire.RefusedMalformed, "%w", err)
	}
	if req.Rejoin && !pki.Bound(req.CSR, c.Secured().ConnectionState()) {
		return nil, handshake.Refuse(wire.RefusedMalformed, "the request of a node that rejoins was made for another connection")
	}
	links, err := topology.Parse(req.Topology)
	if err != nil {
		return nil, handshake.Refuse(wire.RefusedMalformed, "topology %q: %w", req.Topology, err)
	}
	node := membership.Node{ID: id, Host: req.Host, Name: req.Name, Endpoints: req.Endpoints, Place: req.Place}
	if node.Host == "" {
		node.Host = hostOf(observed)
	}
	if node.Addrs, err = addresses(observed, req); err != nil {
		return nil, handshake.Refuse(wire.RefusedAddress, "%w", err)
	}
	admitted := wire.JoinAdmitted{
		Certificate: cert, CA: authority.Certificate(), ID: id, Observed: observed,
		World: uint32(s.cfg.World), Durable: s.durable, Seeds: s.peers.nodeAddrs(),
	}
	n := &nodeConn{
		Conn: c, node: node, wanted: int(req.Rank), late: int(req.Rank), spare: req.Spare, topology: links, origin: originOf(observed), process: req.Process, out: handshake.NewOutbox(), progress: -1,
	}
	if req.Size != 0 {
		n.late = membership.AnyRank
		if int(req.Size) != s.cfg.World {
			n.wanted = membership.AnyRank
		}
	}
	if req.Trial || req.CheckAddress && len(req.Advertised) > 0 {
		if err := s.verify(n, req, admitted); err != nil {
			return nil, err
		}
		if req.Trial {
			s.answerTrial(n)
			return nil, nil
		}
	} else {
		frame, err := wire.AppendJoin(nil, admitted)
		if err != nil {
			return nil, err
		}
		n.out.Post(frame)
	}
	if !s.call(func() { err = s.register(n, req.Rejoin, req.Epoch) }) {
		err = handshake.ErrClosed
	}
	return n, err
}

// register adds the connection of a node to the leader state. A rejoining node has the view of
// an epoch.
func (s *Server) register(c *nodeConn, rejoins bool, epoch uint64) error {
	l, r, id := s.state.leader, &s.state.cluster, c.node.ID
	if l == nil || l.ending && l.form.Phase() < membership.Failed {
		return handshake.Refuse(wire.RefusedBusy, "the leader, or the world, is changing")
	}
	if rejoins && epoch > r.view.Epoch && !s.durable {
		return handshake.Refuse(wire.RefusedOver, "it was started again and has no state: it does not know the world of this node")
	}
	if rejoins && epoch > r.view.Epoch {
		return handshake.Refuse(wire.RefusedBusy, "it has not applied view %d yet", epoch)
	}
	if isMember := s.isMember(id); rejoins && (isMember || r.state.Knows(id)) {
		if isMember && !r.Over {
			s.reconnect(c, epoch)
		} else {
			s.log.Info("node is back, but no longer in the world", "node", id, "addr", c.node.Addrs[0], "name", c.node.Name)
			c.out.Close(handshake.Frame(r.lastMessage(id)))
		}
		return nil
	}
	if old := l.nodes[id]; rejoins && old != nil {
		delete(l.nodes, id)
		old.out.Close(nil)
		s.removeNode(l, id, "it has made another connection to the seed", false)
	}
	if err := s.refusal(c); err != nil {
		s.apply(l.form.Tick(time.Now()))
		return err
	}
	if s.enqueues(l, c) {
		return s.enqueue(l, c)
	}
	step, err := l.form.Admit(time.Now(), c.node, c.wanted)
	if old := l.nodes[step.Replaced]; old != nil {
		reason := fmt.Sprintf("%v: %d was taken over by %v: the launcher has started %s on another host", membership.ErrRank, c.wanted, c.node, c.node.Place)
		s.log.Warn("node has lost its rank", "node", old.node.ID, "addr", old.node.Addrs[0], "name", old.node.Name, "reason", reason)
		s.dismiss(step.Replaced, wire.JoinRefusal{Code: wire.RefusedRank, Text: reason})
	}
	if err == nil {
		l.nodes[id] = c
		s.log.Info("node joined", "node", id, "addr", c.node.Addrs[0], "name", c.node.Name, "joined", l.form.Joined(), "world", s.cfg.World)
		c.out.Post(handshake.Frame(s.progress()))
		if l.form.Joined() == 1 {
			s.remindForming()
		}
	}
	s.apply(step)
	if err != nil {
		return handshake.RefusalOf(err)
	}
	if step.Form != nil { // Its rank is known before the view is committed.
		c.wanted, _ = membership.View{Nodes: step.Form.Nodes}.Rank(id)
	}
	s.emitNode(c, Event{})
	return nil
}

// enqueue adds a node to the pending joins.
func (s *Server) enqueue(l *leader, c *nodeConn) error {
	if err := l.pending.Admit(c.node, c.late, c.spare, c.origin); err != nil {
		return handshake.RefusalOf(err)
	}
	l.nodes[c.node.ID] = c
	s.log.Info("node waits for its rank", "node", c.node.ID, "addr", c.node.Addrs[0], "name", c.node.Name,
		"spare", c.spare, "waiting", l.pending.Waiting(), "world", s.state.cluster.view.Size())
	c.out.Post(handshake.Frame(s.progress()))
	s.emitNode(c, Event{})
	s.decide()
	return nil
}

// reconnect registers a new connection of a node of the view, and repeats the messages that it
// may have missed: a newer view, the expected nodes, and the request to quiesce.
func (s *Server) reconnect(c *nodeConn, epoch uint64) {
	l, r, id := s.state.leader, &s.state.cluster, c.node.ID
	if old := l.nodes[id]; old != nil {
		old.out.Close(nil)
	}
	l.nodes[id] = c
	l.away[id].stop()
	delete(l.away, id)
	l.returning.stop()
	s.state.deserted = 0
	rank, _ := r.view.Rank(id)
	s.log.Info("node is back", "node", id, "addr", c.node.Addrs[0], "name", c.node.Name, "rank", rank)
	if r.Formed && epoch > 0 {
		c.out.Post(handshake.Frame(wire.JoinFormed{Epoch: epoch}))
	}
	if r.view.Epoch > epoch {
		c.out.Post(handshake.Frame(wire.JoinView(r.view)))
	}
	s.emitNode(c, Event{Reconnected: true})
	if l.arbiter == nil {
		return
	}
	s.sendMissed(c)
	l.arbiter.Reconnected(time.Now(), id)
	s.decide()
}

// sendMissed sends a node of the view the expected nodes and the request to quiesce. A seed that has just begun to lead does not know all
// expected nodes until they have had the time to connect to it.
func (s *Server) sendMissed(c *nodeConn) {
	l := s.state.leader
	expect, quiesce := l.arbiter.Missed()
	if b, err := wire.AppendJoin(nil, wire.JoinExpect{Nodes: expect, Complete: !l.absent.isRunning()}); err == nil {
		c.out.Post(b)
	}
	if quiesce {
		c.out.Post(handshake.Frame(wire.JoinQuiesce{Epoch: s.state.cluster.view.Epoch}))
	}
}

// refuse logs the reason why a client is not admitted, and sends it if the client speaks the
// protocol.
func (s *Server) refuse(c *handshake.Conn, err error) {
	if s.ctx.Err() != nil {
		return
	}
	r, refused := errors.AsType[*handshake.Refusal](err)
	if !refused {
		// A node that dials a seed over several transports closes all connections but one.
		if errors.Is(err, transport.ErrPeerClosed) || errors.Is(c.Err(), transport.ErrPeerClosed) {
			s.log.Debug("client did not ask to join", "addr", c.RemoteAddr(), "reason", c.Reason(err))
			return
		}
		s.warnLimited("client did not ask to join", c.RemoteAddr(), c.Reason(err))
		return
	}
	s.warnLimited("node refused", c.RemoteAddr(), r.Error())
	c.WriteLast(s.ctx, s.lim.Linger, wire.JoinRefusal{Code: r.Code, Text: r.Reason.Error()})
}
