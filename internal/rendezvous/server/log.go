package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// A machine applies the changes of the replicated log in the loop. The log calls it on a
// separate goroutine, except for a Restore by Open.
type machine struct{ s *Server }

// call waits until the Server has its log, since applying a change may propose the next one.
func (m machine) call(f func()) {
	<-m.s.opened
	m.s.call(f)
}

func (m machine) Apply(b []byte) { m.call(func() { m.s.commit(b) }) }

func (m machine) Lead(seed, term uint64) {
	m.call(func() {
		if m.s.ctx.Err() == nil {
			m.s.setLeader(seed, term)
		}
	})
}

func (m machine) Progress(behind []uint64) { m.call(func() { m.s.proposeEnd(behind) }) }

func (m machine) Snapshot() (b []byte) {
	m.call(func() {
		var err error
		if b, err = m.s.state.cluster.marshal(); err != nil {
			panic("seed: " + err.Error())
		}
	})
	return b
}

// Check reports why Restore would refuse a state, or why this seed must: it has distributed a
// later view.
func (m machine) Check(b []byte) error {
	r, err := parseClusterState(b)
	if err != nil {
		return err
	}
	m.s.read(func() {
		if ours, theirs := m.s.state.cluster.state.View().Epoch, r.state.View().Epoch; theirs < ours {
			err = fmt.Errorf("it ends with view %d, and this seed knows view %d", theirs, ours)
		}
	})
	return err
}

// Restore adopts the state of a snapshot. Open calls it with the state of this seed.
func (m machine) Restore(b []byte) error {
	r, err := parseClusterState(b)
	if err != nil {
		return err
	}
	if err := m.s.adoptAuthority(r.authority); err != nil {
		return err
	}
	m.s.call(func() {
		if r.Over && m.s.replica != nil {
			m.s.state.end.restored = r.OverTerm
		}
		m.s.state.cluster = r
		m.s.updateWorld()
	})
	return nil
}

// adoptAuthority checks the authority of the log, and makes it that of the transport. It may be nil.
func (s *Server) adoptAuthority(a *pki.Authority) error {
	if err := s.cfg.Authority.CheckIssuer(a); err != nil || a == nil || s.cfg.Adopt == nil {
		return err
	}
	return s.cfg.Adopt(a)
}

// watchLog ends the world for this seed if the log ends before the Server.
func (s *Server) watchLog() {
	select {
	case <-s.ctx.Done():
		return
	case <-s.replica.Done():
	}
	if s.ctx.Err() != nil {
		return // Close has ended it.
	}
	s.call(func() {
		s.setLeader(0, s.state.term)
		s.state.broken = s.replica.Err()
		s.finish()
	})
}

// propose has a change appended to the log. commit makes it.
func (s *Server) propose(c change) {
	s.state.inFlight++
	c.Term, c.Time = s.state.term, time.Now()
	if l := s.state.leader; l != nil && (c.Kind == changeOver || c.Kind == changeAnew) {
		l.ending = true
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic("seed: " + err.Error())
	}
	if s.replica == nil {
		s.state.queue = append(s.state.queue, b)
		return
	}
	s.replica.Propose(s.state.term, b)
}

// isLeader reports whether this seed leads. It has a leader state when it has begun to.
func (s *Server) isLeader() bool { return s.state.leads == s.peers.self }

// commit applies a change of the log, and acts on it if this seed has proposed it.
func (s *Server) commit(b []byte) {
	defer s.decide()
	var c change
	if err := json.Unmarshal(b, &c); err != nil {
		s.log.Error("change cannot be read", "err", err)
		return
	}
	before := s.state.cluster.view
	if s.isLeader() {
		s.state.inFlight--
	}
	if err := s.state.cluster.apply(c); err != nil {
		s.log.Error("change contradicts the state", "kind", c.Kind, "err", err)
		return
	}
	if c.Kind == changeFound {
		if err := s.adoptAuthority(s.state.cluster.authority); err != nil {
			s.state.broken = err
			s.finish()
			return
		}
	}
	if s.isLeader() && (!s.durable || s.ctx.Err() == nil) {
		s.act(before, c)
	}
	s.updateWorld()
	if c.Kind == changeEnd {
		s.commitEnd()
	}
}

// failed returns the message that the world did not form, with the progress if this seed knows it.
func (s *Server) failed(text string) wire.JoinFailed {
	m := wire.JoinFailed{Text: text, World: uint32(s.cfg.World)}
	if e, ok := errors.AsType[*membership.NotFormedError](s.state.failure); ok {
		m.Joined, m.World, m.Candidates = e.Progress.Joined, e.Progress.World, e.Progress.Candidates
	}
	return m
}

// act sends the messages, and proposes the changes, that follow from a change for the leader.
func (s *Server) act(before membership.View, c change) {
	v, l := s.state.cluster.view, s.state.leader
	switch {
	case c.Kind == changeFound || c.Kind == changeAnew:
		s.begin()
	case l == nil:
	case c.Kind == changeOver:
		l.ending = false
		var last []byte
		if c.Failure != "" {
			last = handshake.Frame(s.failed(c.Failure))
		}
		for _, conn := range l.nodes {
			conn.out.Close(last)
		}
	case c.Kind == changeView && !s.state.cluster.Formed:
		s.log.Info("world is full, its nodes connect to each other", "epoch", v.Epoch, "nodes", v.Size())
		s.broadcast(wire.JoinView(v))
		s.remindForming()
	case c.Kind == changeView:
		s.adopt(before, c)
		if v.Size() == 0 && len(l.nodes) == 0 {
			s.propose(change{Kind: changeOver})
		}
	case c.Kind == changeFormed:
		s.log.Info("world has formed", "epoch", v.Epoch, "nodes", v.Size())
		s.broadcast(wire.JoinFormed{Epoch: v.Epoch})
	}
}
