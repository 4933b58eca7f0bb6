package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wire"
)

// A nodeConn is the connection of an admitted node.
type nodeConn struct {
	*handshake.Conn
	node     membership.Node
	wanted   int // the requested rank, or [membership.AnyRank]
	late     int // the same in a world that has formed
	spare    bool
	topology topology.Topology
	origin   string // see originOf
	process  string // JoinRequest.Process
	out      *handshake.Outbox
	leaves   bool   // it has said goodbye to another node: see awaitLeave
	progress int    // the number of joined nodes in its latest JoinProgress
	whole    uint64 // epoch of the newest view that the node has got whole for a JoinBehind
}

// serveNode serves a node from its admission until its connection ends.
func (s *Server) serveNode(c *nodeConn) {
	var writer sync.WaitGroup
	c.LimitBy(s.gate)
	writer.Go(func() {
		c.Run(c.out, s.lim, s.lim.Ping, func() {
			s.post(func() {
				c.out.Post(handshake.Frame(s.ping()))
				s.sendProgress(c)
			})
		})
	})
	reason, left := s.readNode(c)
	s.call(func() { s.disconnected(c, reason, left || c.leaves) })
	c.Close()
	writer.Wait()
}

// sendProgress sends a node the number of joined nodes, if it has changed. It is called at
// every ping, since a message to each node for each joining node would be too many.
func (s *Server) sendProgress(c *nodeConn) {
	if l := s.state.leader; l != nil && l.form.Phase() == membership.Gathering && l.form.Joined() != c.progress {
		c.progress = l.form.Joined()
		c.out.Post(handshake.Frame(s.progress()))
	}
}

func (s *Server) progress() wire.JoinProgress {
	return wire.JoinProgress(s.state.leader.form.Progress())
}

// readNode handles messages of a node until its connection ends, and returns the reason.
func (s *Server) readNode(c *nodeConn) (reason string, left bool) {
	for {
		m, err := c.ReadWithin(s.lim.Silence)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Sprintf("it was silent for %v", s.lim.Silence), false
		case errors.Is(err, io.EOF):
			return "it ended its connection to the seed", false
		case err != nil:
			return "its connection to the seed ended: " + c.Reason(err), false
		}
		if m, is := m.(wire.JoinRenew); is {
			if err := s.renew(c, m.CSR); err != nil {
				return "its signing request: " + err.Error(), false
			}
			continue
		}
		// Only the current connection of a node counts.
		s.call(func() {
			if l := s.state.leader; l != nil && l.nodes[c.node.ID] == c {
				reason, left = s.handle(l, c, m)
			}
		})
		if reason != "" {
			return reason, left
		}
	}
}

// handle handles a message of a node. A reason ends the connection.
func (s *Server) handle(l *leader, c *nodeConn, m wire.JoinMessage) (reason string, left bool) {
	now, id := time.Now(), c.node.ID
	if _, answers := m.(wire.JoinTrace); answers || !l.heard[id].owes {
		l.heard[id] = heard{at: now}
	}
	current := func(epoch uint64) bool { return s.state.cluster.Begun && s.state.cluster.view.Epoch == epoch }
	switch m := m.(type) {
	case wire.JoinReady:
		if current(m.Epoch) {
			s.apply(l.form.Ready(now, id))
		}
	case wire.JoinUnreachable:
		if m.Kind == wire.LossLeft && (l.nodes[m.Peer] == nil && l.left[m.Peer] || !s.isMember(m.Peer)) {
			return "", false // This seed knows. At the end of a world there are many of them.
		}
		if current(m.Epoch) && l.arbiter == nil {
			s.reportUnable(l, now, id, m)
		}
		s.reportLoss(l, now, id, m)
	case wire.JoinExclude:
		if l.arbiter != nil && l.arbiter.Exclude(now, id, m.Peer) {
			s.send(id, s.ping())
			s.send(m.Peer, s.ping())
		}
	case wire.JoinConfirm:
		if l.spread != nil {
			s.sendDifference(l.spread.Confirmation(id, membership.Confirmation(m)))
		}
	case wire.JoinBehind:
		s.sendView(c, m.Epoch)
	case wire.JoinTrace:
		s.setTrace(id, m)
	case wire.JoinLeave:
		return "it left", true
	case wire.JoinPing, wire.JoinLinked, wire.JoinLink, wire.JoinQuiesced:
		if ping, answers := m.(wire.JoinPing); l.arbiter != nil {
			s.informArbiter(l, now, c, m)
		} else if answers {
			s.apply(l.form.Believe(now, s.sentAt(ping, now), id))
		}
	default:
		return fmt.Sprintf("it sent a %T", m), false
	}
	s.decide()
	return "", false
}

// informArbiter passes a message of a node to the arbiter.
func (s *Server) informArbiter(l *leader, now time.Time, c *nodeConn, m wire.JoinMessage) {
	switch m := m.(type) {
	case wire.JoinPing:
		l.arbiter.Heard(s.sentAt(m, now), c.node.ID)
	case wire.JoinLinked:
		if l.arbiter.Linked(c.node.ID, m.Number) {
			s.log.Info("node has links to the world, and may enter it when others confirm them", "node", c.node.ID, "name", c.node.Name, "spare", c.spare)
		}
	case wire.JoinLink:
		l.arbiter.Link(c.node.ID, m.Peer, m.Up)
	case wire.JoinQuiesced:
		l.arbiter.Quiesced(now, c.node.ID, m.Epoch, m.Leaves, time.Duration(m.Timeout)*time.Millisecond)
	}
}

// reportUnable reports to the formation that a node cannot reach another one, or has read its goodbye. The seed pings the other one.
func (s *Server) reportUnable(l *leader, now time.Time, by membership.NodeID, m wire.JoinUnreachable) {
	if m.Kind == wire.LossLeft {
		s.apply(l.form.Gone(now, m.Peer, "it left"))
		return
	}
	step, isNews := l.form.Unable(now, by, m.Peer, m.Text)
	if s.apply(step); !isNews {
		return
	}
	s.send(m.Peer, s.ping())
	s.afterAsLeader(s.lim.Poll, func() { s.apply(l.form.Believe(time.Now(), time.Now(), m.Peer)) })
}

// reportLoss reports to the arbiter that a node has lost its link to another one, or has read
// its goodbye. The seed pings both nodes of a lost link.
func (s *Server) reportLoss(l *leader, now time.Time, by membership.NodeID, m wire.JoinUnreachable) {
	switch {
	case l.arbiter == nil:
	case m.Kind == wire.LossLeft:
		switch c := l.nodes[m.Peer]; {
		case c == nil:
			s.giveUp(l, m.Peer, "it left", true)
		case !c.leaves:
			c.leaves = true
			s.awaitLeave(l, c)
		}
	case m.Kind == wire.LossBroken && l.arbiter.Lost(now, by, m.Peer, m.Text):
		s.send(by, s.ping())
		s.send(m.Peer, s.ping())
		s.ask(l, m.Peer)
	}
}

// awaitLeave waits until a node that has said goodbye to another one tells this seed that it leaves: it may relay for others before. A node that
// does not answer meanwhile has left, and its message was lost.
func (s *Server) awaitLeave(l *leader, c *nodeConn) {
	id, asked := c.node.ID, time.Now()
	s.send(id, s.ping())
	s.afterAsLeader(handshake.Tick, func() {
		switch {
		case l.nodes[id] != c:
		case l.heard[id].at.Before(asked):
			s.disconnected(c, "it left", true)
			c.out.Close(nil)
		default:
			s.awaitLeave(l, c)
		}
	})
}

// renew signs the next certificate of a node.
func (s *Server) renew(c *nodeConn, csr []byte) error {
	if n := c.out.Len(); n > backlogMax {
		return fmt.Errorf("was sent before the node has read %d messages", n)
	}
	cert, id, err := s.authority().Sign(csr, s.cfg.CertificateLife)
	if err != nil {
		return err
	}
	if id != c.node.ID {
		return fmt.Errorf("is of node %v", id)
	}
	c.out.Post(handshake.Frame(wire.JoinRenewed{Certificate: cert}))
	s.log.Debug("certificate renewed", "node", id, "name", c.node.Name)
	return nil
}

// disconnected handles the end of a connection.
func (s *Server) disconnected(c *nodeConn, reason string, left bool) {
	l, id := s.state.leader, c.node.ID
	if l == nil || l.nodes[id] != c {
		return
	}
	delete(l.nodes, id)
	s.setAnswer(id, nil, hasGone)
	s.reachNot(id)
	rank, in := s.state.cluster.view.Rank(id)
	if s.ctx.Err() == nil && l.form.Phase() != membership.Failed {
		attrs := []any{"node", id, "addr", c.node.Addrs[0], "name", c.node.Name, "reason", reason, "phase", l.form.Phase()}
		if in {
			attrs = append(attrs, "rank", rank)
		}
		level, event := slog.LevelWarn, "node is gone"
		if left {
			level, event = slog.LevelInfo, "node left"
		}
		s.log.Log(s.ctx, level, event, attrs...)
		s.emitNode(c, Event{Gone: true, Left: left, Reason: reason})
	}
	isMember := s.isMember(id)
	if isMember { // Only nodes of the world count.
		l.left[id] = left
	}
	if isMember && !left {
		s.awaitNode(l, id, reason)
	} else {
		s.removeNode(l, id, reason, left)
	}
	s.checkEmpty()
}

// isMember reports whether a node is in the view, or in the first view that this seed has proposed.
func (s *Server) isMember(id membership.NodeID) bool {
	_, in := s.state.cluster.view.Rank(id)
	return in || s.state.leader.form.IsMember(id)
}

// awaitNode gives a node time to reconnect, after which it is gone. The end of its connection does not show that its process has
// ended: it may have given up this seed, or the network may have cut the connection.
func (s *Server) awaitNode(l *leader, id membership.NodeID, reason string) {
	l.away[id].stop()
	l.away[id] = s.afterAsLeader(s.lim.Away, func() {
		switch {
		case s.state.cluster.Over:
		case s.isPopulated() || l.arbiter == nil:
			s.giveUp(l, id, reason, false)
		default: // This seed may have been cut off. Limits.Return bounds the wait for all nodes.
			s.awaitNode(l, id, reason)
		}
	})
	for id := range l.away { // The node may have been the last one that could notice the end of another.
		s.ask(l, id)
	}
}

// giveUp ends the wait for a node without a connection.
func (s *Server) giveUp(l *leader, id membership.NodeID, reason string, left bool) {
	l.away[id].stop()
	delete(l.away, id)
	s.removeNode(l, id, reason, left)
	l.left[id] = l.left[id] || left || !s.durable
	s.checkEmpty()
}

// removeNode reports to the formation or the arbiter that a node is gone.
func (s *Server) removeNode(l *leader, id membership.NodeID, reason string, left bool) {
	delete(l.heard, id)
	s.apply(l.form.Gone(time.Now(), id, reason))
	if l.arbiter == nil {
		l.pending.Gone(id)
		return
	}
	l.arbiter.Gone(time.Now(), id, left, reason)
	s.decide()
}

// emitNode queues an event of a node.
func (s *Server) emitNode(c *nodeConn, event Event) {
	event.Node, event.Rank, event.Here = c.node, c.wanted, len(s.state.leader.nodes)
	if r, ok := s.state.cluster.view.Rank(c.node.ID); ok {
		event.Rank = r
	}
	s.emit(event)
}

// send posts a message to a node, if it has a connection.
func (s *Server) send(id membership.NodeID, m wire.JoinMessage) { s.sendFrame(id, handshake.Frame(m)) }

func (s *Server) sendFrame(id membership.NodeID, frame []byte) {
	if c := s.state.leader.nodes[id]; c != nil {
		c.out.Post(frame)
	}
}

// dismiss posts the last message to a node.
func (s *Server) dismiss(id membership.NodeID, m wire.JoinMessage) {
	if c := s.state.leader.nodes[id]; c != nil {
		c.out.Close(handshake.Frame(m))
	}
}

// broadcast sends a message to all nodes of the view.
func (s *Server) broadcast(m wire.JoinMessage) {
	frame := handshake.Frame(m)
	for _, n := range s.state.cluster.view.Nodes {
		s.sendFrame(n.ID, frame)
	}
}

// ping returns a ping with the current time as its number. The loop calls it.
func (s *Server) ping() wire.JoinPing {
	return wire.JoinPing{Seq: uint64(time.Since(s.began)), Epoch: s.state.cluster.view.Epoch}
}

// sentAt returns the time at which a returned ping was sent.
func (s *Server) sentAt(m wire.JoinPing, now time.Time) time.Time {
	if m.Seq > uint64(now.Sub(s.began)) {
		return now // This seed has never sent it.
	}
	return s.began.Add(time.Duration(m.Seq))
}
