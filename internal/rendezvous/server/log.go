package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// A localLog is the consensus.Log of a seed that is alone and keeps nothing: it applies changes in the
// order in which they are proposed.
type localLog struct {
	wake chan struct{} // one token: queue or closed has changed
	done chan struct{}

	mu     sync.Mutex
	queue  [][]byte
	closed bool
}

// localTerm is the term of a localLog.
const localTerm = 1

func openLocal(cfg consensus.Config) (consensus.Log, error) {
	l := &localLog{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		cfg.StateMachine.Lead(cfg.Self, localTerm)
		for {
			queue, closed := l.take()
			for _, change := range queue {
				cfg.StateMachine.Apply(change)
			}
			switch {
			case len(queue) > 0:
			case closed:
				return
			default:
				<-l.wake
			}
		}
	}()
	return l, nil
}

func (l *localLog) take() (queue [][]byte, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue, l.queue = l.queue, nil
	return queue, l.closed
}

func (l *localLog) put(change []byte) {
	l.mu.Lock()
	if change != nil {
		l.queue = append(l.queue, change)
	} else {
		l.closed = true
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *localLog) Propose(_ uint64, change []byte) { l.put(change) }
func (l *localLog) Step(uint64, []byte) error       { return errors.New("this seed has no peers") }
func (l *localLog) Gone(uint64)                     {}
func (l *localLog) Done() <-chan struct{}           { return l.done }
func (l *localLog) Err() error                      { return nil }

// Close applies all proposed changes first.
func (l *localLog) Close() error {
	l.put(nil)
	<-l.done
	return nil
}

// A machine applies the changes of the log in the loop. The log calls it on a goroutine of
// its own, save for a Restore by Open.
type machine struct{ s *Server }

// call waits until the Server has its log: applying a change may propose the next one.
func (m machine) call(f func()) {
	<-m.s.opened
	m.s.call(f)
}

func (m machine) Apply(b []byte) {
	var c change
	if err := json.Unmarshal(b, &c); err != nil {
		m.s.log.Error("change cannot be read", "err", err)
		return
	}
	m.call(func() {
		m.s.commit(c)
		m.s.decide()
	})
}

func (m machine) Lead(seed, term uint64) {
	m.call(func() {
		if m.s.ctx.Err() == nil {
			m.s.setLeader(seed, term)
		}
	})
}

func (m machine) Progress(behind []uint64) { m.call(func() { m.s.shareEnd(behind) }) }

func (m machine) Snapshot() (b []byte) {
	m.call(func() {
		var err error
		if b, err = m.s.state.record.marshal(); err != nil {
			panic("seed: " + err.Error())
		}
	})
	return b
}

// Check reports why Restore would not take a state, or why this seed must not: it has
// handed out a later view.
func (m machine) Check(b []byte) error {
	r, err := parseRecord(b)
	if err != nil {
		return err
	}
	m.s.read(func() {
		if ours, theirs := m.s.state.record.state.View().Epoch, r.state.View().Epoch; theirs < ours {
			err = fmt.Errorf("it ends with view %d, and this seed knows view %d", theirs, ours)
		}
	})
	return err
}

// Restore takes the state of a snapshot. Open calls it with that of this seed.
func (m machine) Restore(b []byte) error {
	r, err := parseRecord(b)
	if err != nil {
		return err
	}
	m.s.call(func() {
		if r.over && isClosed(m.s.opened) {
			m.s.state.end.restored = r.overTerm
		}
		m.s.state.record = r
		m.s.announce()
	})
	return nil
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
	c.Term = s.state.term
	if l := s.state.leader; l != nil && (c.Kind == changeOver || c.Kind == changeAnew) {
		l.ending = true
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic("seed: " + err.Error())
	}
	s.replica.Propose(s.state.term, b)
}

// isLeader reports whether this seed leads. It has a leader state when it has begun to.
func (s *Server) isLeader() bool { return s.state.leads == s.peers.self }

// commit makes a change of the log, and acts on it if this seed has proposed it.
func (s *Server) commit(c change) {
	before := s.state.record.view
	if s.isLeader() {
		s.state.inFlight--
	}
	if err := s.state.record.apply(c); err != nil {
		s.log.Error("change makes no sense", "kind", c.Kind, "err", err)
		return
	}
	if s.isLeader() && (!s.durable || s.ctx.Err() == nil) {
		s.act(before, c)
	}
	s.announce()
	if c.Kind == changeEnd {
		s.endAgreed()
	}
}

// act sends the messages, and proposes the changes, that follow from a change for the leader.
func (s *Server) act(before membership.View, c change) {
	v, l := s.state.record.view, s.state.leader
	switch {
	case c.Kind == changeFound || c.Kind == changeAnew:
		s.begin()
	case l == nil:
	case c.Kind == changeOver:
		l.ending = false
		var last []byte
		if c.Failure != "" {
			last = handshake.Frame(wire.JoinFailed{Text: c.Failure})
		}
		for _, conn := range l.nodes {
			conn.out.Close(last)
		}
	case c.Kind == changeView && !s.state.record.formed:
		s.log.Info("world is full, its nodes connect to each other", "epoch", v.Epoch, "nodes", v.Size())
		s.broadcast(wire.JoinView(v))
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
