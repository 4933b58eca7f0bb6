package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A guest is a node that has a place and a conn to the seed.
type guest struct {
	*line
	node   membership.Node
	wanted int // the rank it wants, or membership.AnyRank
	spare  bool
	origin string // see originOf
	out    *outbox
}

// host is the life of a conn after its node was admitted. It keeps the conn
// for as long as the node does, so that its end is noticed.
func (s *Server) host(g *guest) {
	var writer sync.WaitGroup
	writer.Go(func() { g.run(g.out, s.lim, s.lim.ping, s.newPing(g)) })
	reason, left := s.listen(g)
	s.gone(g, reason, left)
	g.conn.Close()
	writer.Wait()
}

// newPing returns what is done at every interval: to ask whether the node
// still works and, as long as others are awaited, to say how many have come.
// That is not sent at each arrival, which would be a message from everyone to
// everyone.
func (s *Server) newPing(g *guest) func() {
	told := -1
	return func() {
		g.out.post(frame(s.ping()))
		s.mu.Lock()
		defer s.mu.Unlock()
		joined, phase := s.form.Joined(), s.form.Phase()
		if phase == membership.Gathering && joined != told {
			told = joined
			g.out.post(s.progress())
		}
	}
}

// progress is how many have joined. The lock is held.
func (s *Server) progress() []byte {
	return frame(wire.JoinProgress{Joined: uint32(s.form.Joined()), World: uint32(s.cfg.World)})
}

// listen handles what a node says until it goes, and returns why it did.
func (s *Server) listen(g *guest) (reason string, left bool) {
	for {
		m, err := g.hear(s.lim.silence)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Sprintf("it was silent for %v", s.lim.silence), false
		case errors.Is(err, io.EOF):
			return "it ended its conn to the seed", false
		case err != nil:
			return "its conn to the seed ended: " + g.reason(err), false
		}
		if !s.isGuest(g) {
			continue // Somebody else decides now, or it has another conn.
		}
		switch m := m.(type) {
		case wire.JoinPing:
			s.judge(func(now time.Time) { s.arbiter.Heard(s.asked(m, now), g.node.ID) })
		case wire.JoinReady:
			if s.isView(m.Epoch) {
				s.step(func(now time.Time) membership.Step { return s.form.Ready(now, g.node.ID) })
			}
		case wire.JoinUnable:
			if s.isView(m.Epoch) {
				s.step(func(now time.Time) membership.Step { return s.form.Unable(now, g.node.ID, m.Peer, m.Text) })
			}
			s.judge(func(now time.Time) { s.unable(now, g.node.ID, m) })
		case wire.JoinLinked:
			s.judge(func(time.Time) { s.linked(g, m.Number) })
		case wire.JoinLink:
			s.judge(func(time.Time) { s.arbiter.Link(g.node.ID, m.Peer, m.Up) })
		case wire.JoinRest:
			within := time.Duration(m.Within) * time.Millisecond
			s.judge(func(now time.Time) { s.arbiter.Rest(now, g.node.ID, m.Epoch, m.Leaves, within) })
		case wire.JoinTell:
			s.told(g.node.ID, m)
		case wire.JoinRenew:
			if err := s.renew(g, m.CSR); err != nil {
				return "its signing request: " + err.Error(), false
			}
		case wire.JoinLeave:
			return "it left", true
		default:
			return fmt.Sprintf("it sent a %T", m), false
		}
	}
}

// linked notes that a node says that it is linked to the world. The lock is held.
func (s *Server) linked(g *guest, number uint64) {
	if s.arbiter.Linked(g.node.ID, number) {
		s.log.Info("node says that it is linked to the world, and may take a place when others confirm it", "node", g.node.ID, "name", g.node.Name, "spare", g.spare)
	}
}

// isView reports whether a node speaks of the view that there is.
func (s *Server) isView(epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record.begun && s.record.view.Epoch == epoch
}

// renew signs the next certificate of a node, and of no other.
func (s *Server) renew(g *guest, csr []byte) error {
	if n := g.out.waiting(); n > backlogMax {
		return fmt.Errorf("comes before it has read %d messages", n)
	}
	cert, id, err := s.authority().Sign(csr, s.cfg.CertificateLife)
	if err != nil {
		return err
	}
	if id != g.node.ID {
		return fmt.Errorf("is of node %v", id)
	}
	g.out.post(frame(wire.JoinRenewed{Certificate: cert}))
	s.log.Debug("certificate renewed", "node", id, "name", g.node.Name)
	return nil
}

// isGuest reports whether this conn is the one that its node has.
func (s *Server) isGuest(g *guest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guests[g.node.ID] == g
}

// gone says that a node has no conn to the seed any more.
func (s *Server) gone(g *guest, reason string, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guests[g.node.ID] != g {
		return
	}
	delete(s.guests, g.node.ID)
	s.answered(g.node.ID, nil, hasGone)
	if s.open.Err() == nil && s.form.Phase() != membership.Failed {
		attrs := []any{"node", g.node.ID, "addr", g.node.Addrs[0], "name", g.node.Name, "reason", reason, "phase", s.form.Phase()}
		if rank, ok := s.record.view.Rank(g.node.ID); ok {
			attrs = append(attrs, "rank", rank)
		}
		if left {
			s.log.Info("node left", attrs...)
		} else {
			s.log.Warn("node is gone", attrs...)
		}
		s.note(g, Event{Gone: true, Left: left, Reason: reason})
	}
	if s.peers == nil || left || died(g.conn) {
		s.forget(g, reason, left)
	} else {
		s.forgetLater(g, reason)
	}
	s.lookAround(g, left)
}

// died reports whether the process at the other end of a conn is known to have ended.
func died(conn transport.Conn) bool { return errors.Is(conn.Err(), transport.ErrPeerGone) }

// forgetLater is forget for a node whose conn has ended, if it has no other soon:
// where seeds last, that is no end of the node. The lock is held.
func (s *Server) forgetLater(g *guest, reason string) {
	if _, in := s.record.view.Rank(g.node.ID); !in {
		s.forget(g, reason, false)
		return
	}
	form := s.form
	s.office.departed[g.node.ID] = g
	time.AfterFunc(s.lim.away, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.office.departed[g.node.ID] != g {
			return // It was back meanwhile, or somebody else led.
		}
		delete(s.office.departed, g.node.ID)
		if s.form == form && s.office.held && s.guests[g.node.ID] == nil && s.open.Err() == nil {
			s.forget(g, reason, false)
		}
	})
}

// forget tells those who decide that a node is gone. The lock is held.
func (s *Server) forget(g *guest, reason string, left bool) {
	s.apply(s.form.Gone(time.Now(), g.node.ID, reason))
	if s.arbiter == nil {
		s.pending.Gone(g.node.ID)
	}
	s.hear(func(now time.Time) { s.arbiter.Gone(now, g.node.ID, left, reason) })
}

// takeBack gives a node of the view its place again, and tells it what it may have
// missed. The lock is held.
func (s *Server) takeBack(g *guest, epoch uint64) {
	if old := s.guests[g.node.ID]; old != nil {
		old.out.close(nil)
	}
	s.guests[g.node.ID] = g
	delete(s.office.departed, g.node.ID)
	s.office.inherited = 0
	v := s.record.view
	rank, _ := v.Rank(g.node.ID)
	s.log.Info("node is back", "node", g.node.ID, "addr", g.node.Addrs[0], "name", g.node.Name, "rank", rank)
	if s.record.formed && epoch > 0 {
		g.out.post(frame(wire.JoinFormed{Epoch: epoch}))
	}
	if v.Epoch > epoch {
		g.out.post(frame(viewMessage(v)))
	}
	s.note(g, Event{Back: true})
	if s.arbiter != nil {
		s.catchUp(g)
	}
	s.hear(func(now time.Time) { s.arbiter.Back(now, g.node.ID) })
}

// catchUp tells a node of the world whom others have been told to expect, and that they
// have been called to rest. The lock is held.
func (s *Server) catchUp(g *guest) {
	expect, called := s.arbiter.Missed()
	if b, err := wire.AppendJoin(nil, wire.JoinExpect{Nodes: nodesMessage(expect), Whole: true}); err == nil {
		g.out.post(b)
	}
	if called {
		g.out.post(frame(wire.JoinCall{Epoch: s.record.view.Epoch}))
	}
}

// sendOff tells a node that is back why it is not in the world any more. The lock is
// held.
func (s *Server) sendOff(g *guest) {
	last := s.record.farewell(g.node.ID)
	s.log.Info("node is back, and not in the world any more", "node", g.node.ID, "addr", g.node.Addrs[0], "name", g.node.Name)
	g.out.close(frame(last))
}

// drop lets a conn go whose node has another one and is in no view. The lock is held.
func (s *Server) drop(g *guest) {
	delete(s.guests, g.node.ID)
	g.out.close(nil)
	s.forget(g, "it has another conn", false)
}
