package server

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// polling is the state of status polls. Polls cost the nodes time and the seed memory. So one
// runs at a time and answers all clients that ask meanwhile, with a pause between two.
type polling struct {
	current *poll     // nil: none is running
	last    time.Time // when the latest one began
	count   uint64
	pause   *timer // until the next one may begin
}

// A poll asks all nodes of a formed world for their traces.
type poll struct {
	number   uint64
	reports  []wire.JoinNodeStatus
	asked    map[membership.NodeID]int // nodes that have not answered, with the index of their report
	standing wire.JoinWorldStatus
	due      *timer // until missing answers are abandoned
	done     bool   // the result is final
}

// clientsMax is the maximum number of concurrent status clients. A client that does not read
// holds the traces of all nodes in memory, for Limits.Write.
const clientsMax = 4

// Reasons why a report has no trace.
const (
	notJoined = "has not joined the world yet"
	waits     = "waits to join the world"
	noConn    = "has no connection to the seed"
	hasGone   = "has gone"
)

// serveStatus answers a client that asks for the state of all nodes.
func (s *Server) serveStatus(c *handshake.Conn) (err error) {
	select {
	case s.statusClients <- struct{}{}:
	default:
		return handshake.Refuse(wire.RefusedBusy, "%d status requests are in progress: try again", cap(s.statusClients))
	}
	var p *poll
	polled := s.await(s.ctx, func() bool {
		if p == nil {
			p, err = s.poll()
		}
		return err != nil || p != nil && p.done
	})
	switch {
	case !polled:
		err = handshake.ErrClosed
	case err == nil:
		s.log.Debug("a client asks for the state of the nodes", "addr", c.RemoteAddr(), "nodes", len(p.reports))
		if err := s.report(c, p); err != nil {
			s.log.Debug("the client has not read the state of the nodes", "addr", c.RemoteAddr(), "err", c.Reason(err))
		}
	}
	<-s.statusClients
	if err == nil {
		c.Finish(s.lim.Linger)
	}
	return err
}

// report writes the result of a poll.
func (s *Server) report(c *handshake.Conn, p *poll) error {
	deadline := time.Now().Add(s.lim.Write) // for all messages
	for _, r := range p.reports {
		if err := c.Write(deadline, r); err != nil {
			return err
		}
	}
	return c.Write(deadline, p.standing)
}

// poll returns the running poll, or begins one. It returns nil if it is too early for the next
// one, and notifies when it is time.
func (s *Server) poll() (*poll, error) {
	state := &s.state.polling
	switch {
	case s.state.err != nil:
		return nil, handshake.Refuse(wire.RefusedOver, "the world did not form: %w", s.state.err)
	case state.current != nil:
		return state.current, nil
	case s.state.leader == nil:
		return nil, handshake.Refuse(wire.RefusedBusy, "the leader, or the world, is changing")
	}
	if pause := time.Until(state.last.Add(s.lim.Pause)); pause > 0 {
		state.pause.stop()
		state.pause = s.after(pause, s.notify)
		return nil, nil
	}
	state.last = time.Now()
	p := s.newPoll(s.state.leader)
	state.current = p
	p.due = s.after(s.lim.Poll, func() {
		clear(p.asked)
		s.settle(p)
	})
	s.settle(p)
	return p, nil
}

// newPoll asks the nodes that are connected.
func (s *Server) newPoll(l *leader) *poll {
	formed, view := l.form.Phase() == membership.Formed, s.state.cluster.view
	s.state.polling.count++
	p := &poll{
		number: s.state.polling.count, asked: make(map[membership.NodeID]int),
		standing: wire.JoinWorldStatus{
			Epoch: view.Epoch, World: uint32(s.cfg.World), Joined: uint32(l.form.Joined()), Waiting: uint32(l.pending.Waiting()), Formed: formed,
		},
	}
	if formed {
		p.standing.Joined = uint32(view.Size())
	}
	for rank, n := range view.Nodes {
		missing := notJoined
		switch {
		case l.nodes[n.ID] == nil:
			missing = noConn
		case formed:
			missing = fmt.Sprintf("has not answered within %v", s.lim.Poll)
			p.asked[n.ID] = rank
			s.send(n.ID, wire.JoinTraceRequest{Number: p.number})
		}
		p.add(rank, n, missing)
	}
	for _, c := range s.unranked(l) {
		missing := notJoined
		if c.spare || formed {
			missing = waits
		}
		p.add(c.wanted, c.node, missing)
	}
	return p
}

func (p *poll) add(rank int, n membership.Node, missing string) {
	p.reports = append(p.reports, wire.JoinNodeStatus{Rank: int32(rank), ID: n.ID, Name: n.Name, Addr: n.Addr(), Missing: missing})
}

// unranked returns the nodes outside the view, first those that requested a rank.
func (s *Server) unranked(l *leader) (list []*nodeConn) {
	for id, c := range l.nodes {
		if _, in := s.state.cluster.view.Rank(id); !in {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *nodeConn) int {
		return cmp.Or(
			-cmp.Compare(min(a.wanted, 0), min(b.wanted, 0)), cmp.Compare(a.wanted, b.wanted),
			cmp.Compare(a.node.Name, b.node.Name), bytes.Compare(a.node.ID[:], b.node.ID[:]),
		)
	})
	return list
}

// settle ends a poll if no answer is missing.
func (s *Server) settle(p *poll) {
	if s.state.polling.current == p && len(p.asked) == 0 {
		s.state.polling.current = nil
		p.due.stop()
		p.done = true
		s.notify()
	}
}

// setTrace records the trace of a node in answer to the current poll.
func (s *Server) setTrace(id membership.NodeID, m wire.JoinTrace) {
	if p := s.state.polling.current; p != nil && p.number == m.Number {
		s.setAnswer(id, m.Trace, notJoined)
	}
}

// setAnswer records the answer of a node: its trace or, if that is empty, the reason why it is
// missing.
func (s *Server) setAnswer(id membership.NodeID, trace []byte, missing string) {
	p := s.state.polling.current
	if p == nil {
		return
	}
	i, awaited := p.asked[id]
	if !awaited {
		return
	}
	delete(p.asked, id)
	if len(trace) > 0 {
		missing = ""
	}
	p.reports[i].Trace, p.reports[i].Missing = trace, missing
	s.settle(p)
}
