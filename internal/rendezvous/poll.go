package rendezvous

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// A poll asks all nodes of a world that has formed for their records. What nodes
// are asked costs them something, and their records take memory here: so there is
// one poll at a time, which serves all who ask during it, and a pause between two.
type poll struct {
	number   uint64
	reports  []wire.JoinReport
	asked    map[membership.NodeID]int // whose answer is awaited, by the place of its report
	standing wire.JoinStanding
	due      time.Time     // when answers are awaited no longer
	done     chan struct{} // closed when nothing changes any more
}

// askersMax is how many are answered at one time. Whoever takes no answer holds
// the records of all nodes in memory, until limits.write is over.
const askersMax = 4

// Why there is no record of a node.
const (
	notJoined = "has not joined the world yet"
	waits     = "waits for its place in the world"
	noConn    = "has no conn to the seed"
	hasGone   = "has gone"
)

// inform tells somebody who holds the token where all nodes are.
func (s *Server) inform(l *line) error {
	select {
	case s.askers <- struct{}{}:
	default:
		return refuse(wire.RefusedBusy, "%d others ask where its nodes are; ask again", cap(s.askers))
	}
	err := s.report(l)
	<-s.askers
	if _, refused := err.(*refusal); refused {
		return err
	}
	if err != nil {
		s.log.Debug("nobody has read where the nodes are", "addr", l.conn.RemoteAddr(), "err", l.reason(err))
		return nil
	}
	l.finish(s.lim.linger)
	return nil
}

// report asks the nodes, and writes what they say.
func (s *Server) report(l *line) error {
	p, err := s.askAll()
	if err != nil {
		return err
	}
	s.log.Debug("somebody asks where the nodes are", "addr", l.conn.RemoteAddr(), "nodes", len(p.reports))
	deadline := time.Now().Add(s.lim.write) // for all together
	for _, r := range p.reports {
		if err := l.write(deadline, r); err != nil {
			return err
		}
	}
	return l.write(deadline, p.standing)
}

// askAll returns a poll that is done.
func (s *Server) askAll() (*poll, error) {
	for {
		p, pause, err := s.poll()
		if err != nil {
			return nil, err
		}
		if pause == 0 {
			return p, s.await(p)
		}
		if !sleep(s.open, pause) {
			return nil, ErrClosed
		}
	}
}

// poll returns the poll that is under way, or begins one unless it is too early.
func (s *Server) poll() (p *poll, pause time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.err; err != nil {
		return nil, 0, refuse(wire.RefusedOver, "the world did not form: %w", err)
	}
	now := time.Now()
	if s.polling != nil {
		return s.polling, 0, nil
	}
	if pause := s.polled.Add(s.lim.pause).Sub(now); pause > 0 {
		return nil, pause, nil
	}
	s.polled = now
	s.polling = s.newPoll(now)
	p = s.polling
	s.settle(p)
	return p, 0, nil
}

// newPoll makes a poll of the nodes that there are, and asks them. The lock is
// held.
func (s *Server) newPoll(now time.Time) *poll {
	formed := s.form.Phase() == membership.Formed
	s.polls++
	p := &poll{
		number: s.polls, asked: make(map[membership.NodeID]int), due: now.Add(s.lim.tell), done: make(chan struct{}),
		standing: wire.JoinStanding{
			Epoch: s.record.view.Epoch, World: uint32(s.cfg.World), Joined: uint32(s.form.Joined()),
			Waiting: uint32(s.pending.Waiting()), Formed: formed,
		},
	}
	if formed {
		p.standing.Joined = uint32(s.record.view.Size())
	}
	ask := frame(wire.JoinAsk{Number: p.number})
	for rank, n := range s.record.view.Nodes {
		g, missing := s.guests[n.ID], notJoined
		switch {
		case g == nil:
			missing = noConn
		case formed:
			missing = fmt.Sprintf("no answer within %v", s.lim.tell)
			p.asked[n.ID] = rank
			g.out.post(ask)
		}
		p.add(rank, n, missing)
	}
	for _, g := range s.unranked() {
		missing := notJoined
		if g.spare || formed {
			missing = waits
		}
		p.add(g.wanted, g.node, missing)
	}
	return p
}

func (p *poll) add(rank int, n membership.Node, missing string) {
	p.reports = append(p.reports, wire.JoinReport{Rank: int32(rank), ID: n.ID, Name: n.Name, Addr: n.Addr(), Missing: missing})
}

// unranked are the nodes that are in no view, those first that want a rank. The
// lock is held.
func (s *Server) unranked() (list []*guest) {
	for id, g := range s.guests {
		if _, in := s.record.view.Rank(id); !in {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *guest) int {
		return cmp.Or(
			-cmp.Compare(min(a.wanted, 0), min(b.wanted, 0)), cmp.Compare(a.wanted, b.wanted),
			cmp.Compare(a.node.Name, b.node.Name), bytes.Compare(a.node.ID[:], b.node.ID[:]),
		)
	})
	return list
}

// await waits until a poll is done.
func (s *Server) await(p *poll) error {
	t := time.NewTimer(time.Until(p.due))
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-s.open.Done():
		return ErrClosed
	case <-t.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(p.asked)
	s.settle(p)
	return nil
}

// settle ends a poll if it is under way and nobody's answer is awaited. The lock is
// held.
func (s *Server) settle(p *poll) {
	if s.polling == p && len(p.asked) == 0 {
		s.polling = nil
		close(p.done)
	}
}

// told takes a node's answer. What nobody has asked for is dropped.
func (s *Server) told(id membership.NodeID, m wire.JoinTell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.polling; p != nil && p.number == m.Number {
		s.answered(id, m.Record, notJoined)
	}
}

// answered ends the wait for a node's answer: it is a record, or there is none and
// why. The lock is held.
func (s *Server) answered(id membership.NodeID, record []byte, missing string) {
	p := s.polling
	if p == nil {
		return
	}
	i, awaited := p.asked[id]
	if !awaited {
		return
	}
	delete(p.asked, id)
	if len(record) > 0 {
		missing = ""
	}
	p.reports[i].Record, p.reports[i].Missing = record, missing
	s.settle(p)
}
