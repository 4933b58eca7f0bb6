package server

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
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
	detail   wire.Detail // of the traces
	began    time.Time
	end      time.Time // when missing answers are abandoned
	due      *timer    // until then
	done     bool      // the result is final
}

// clientsMax is the maximum number of concurrent status clients. A client that does not read
// holds the traces of all nodes in memory, for Limits.Write.
const clientsMax = 4

// Reasons why a report has no trace.
const (
	silent    = "has not answered"
	notJoined = "has not joined the world yet"
	waits     = "waits to join the world"
	noConn    = "has no connection to the seed"
	hasGone   = "has gone"
)

// serveStatus answers a client that asks for the state of all nodes.
func (s *Server) serveStatus(c *handshake.Conn, q wire.JoinStatusRequest) (err error) {
	select {
	case s.statusClients <- struct{}{}:
	default:
		return handshake.Refuse(wire.RefusedBusy, "%d status requests are in progress: try again", cap(s.statusClients))
	}
	var p *poll
	polled := s.await(s.ctx, func() bool {
		if p == nil {
			p, err = s.poll(q)
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

// poll returns the running poll, or begins one. The poll ends within the shortest wait of its clients. poll returns nil if
// it is too early for the next one, or if the running one asks for other things, and notifies when it is time.
func (s *Server) poll(q wire.JoinStatusRequest) (*poll, error) {
	state := &s.state.polling
	switch {
	case s.state.err != nil:
		return nil, handshake.Refuse(wire.RefusedOver, "the world did not form: %w", s.state.err)
	case state.current != nil && state.current.detail != q.Detail && (state.current.detail != wire.Full || q.Detail != wire.Brief):
		return nil, nil
	case state.current != nil:
		s.limitPoll(state.current, q)
		return state.current, nil
	case s.state.leader == nil:
		return nil, handshake.Refuse(wire.RefusedBusy, "the leader, or the world, is changing")
	}
	if pause := time.Until(state.last.Add(s.lim.Pause)); pause > 0 {
		state.pause.stop()
		state.pause = s.after(pause, s.notify)
		return nil, nil
	}
	p := s.newPoll(s.state.leader, q.Detail)
	state.current, state.last = p, p.began
	s.limitPoll(p, q)
	s.settle(p)
	return p, nil
}

// limitPoll ends a poll no later than a client wants, but gives nodes a twentieth of Limits.Poll: a client cannot make others go without answers.
func (s *Server) limitPoll(p *poll, q wire.JoinStatusRequest) {
	wait := s.lim.Poll
	if q.Wait > 0 {
		wait = min(wait, max(time.Duration(q.Wait)*time.Millisecond, s.lim.Poll/20))
	}
	if end := time.Now().Add(wait); p.due == nil || end.Before(p.end) {
		p.due.stop()
		p.end, p.due = end, s.after(wait, func() { s.abandon(p) })
	}
}

// heard says when a node has sent its last message or, if it owes the answer to a poll, the last one before.
type heard struct {
	at   time.Time
	owes bool
}

// silence returns the time since a node was heard of, or 0 if it is unknown.
func (l *leader) silence(id membership.NodeID) uint64 {
	if h, known := l.heard[id]; known {
		return uint64(time.Since(h.at))
	}
	return 0
}

// abandon ends a poll without the answers that are missing.
func (s *Server) abandon(p *poll) {
	if l := s.state.leader; l != nil {
		for id, i := range p.asked {
			h, known := l.heard[id]
			if !known {
				h.at = p.began
			}
			l.heard[id] = heard{h.at, true}
			p.reports[i].Silent = l.silence(id)
		}
	}
	clear(p.asked)
	s.settle(p)
}

// newPoll asks the nodes that are connected.
func (s *Server) newPoll(l *leader, detail wire.Detail) *poll {
	formed, view := l.form.Phase() == membership.Formed, s.state.cluster.view
	s.state.polling.count++
	p := &poll{
		number: s.state.polling.count, asked: make(map[membership.NodeID]int), detail: detail, began: time.Now(),
		standing: wire.JoinWorldStatus{
			Epoch: view.Epoch, World: uint32(s.cfg.World), Joined: uint32(l.form.Joined()), Waiting: uint32(l.pending.Waiting()), Formed: formed,
		},
	}
	if formed {
		p.standing.Joined = uint32(view.Size())
	}
	p.standing.Asked, p.standing.Changes = uint64(p.began.UnixNano()), s.state.cluster.changes()
	for rank, n := range view.Nodes {
		missing := notJoined
		switch {
		case l.nodes[n.ID] == nil:
			missing = noConn
		case formed:
			missing = silent
			p.asked[n.ID] = rank
			s.send(n.ID, wire.JoinTraceRequest{Number: p.number, Detail: detail})
		case !l.form.IsConnected(n.ID):
			missing = trace.Unconnected
		}
		p.add(rank, n, missing)
		if missing == noConn {
			p.reports[rank].Silent = l.silence(n.ID)
		}
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
	r := &p.reports[i]
	r.Trace, r.Missing, r.Took = trace, missing, uint64(time.Since(p.began))
	s.settle(p)
}
