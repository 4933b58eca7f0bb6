package seed

import (
	"time"

	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/internal/wire"
)

// judge is hear for those who do not hold the lock.
func (s *Server) judge(input func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hear(input)
}

// hear carries an input to the council out, if the world has formed, and has the
// council decide when it is time to. The lock is held.
func (s *Server) hear(input func(now time.Time)) {
	if s.council == nil || s.open.Err() != nil {
		return
	}
	now := time.Now()
	input(now)
	if r, ok := s.council.Tick(now); ok {
		s.change(r)
	}
	due, ok := s.council.Deadline()
	switch {
	case !ok:
	case s.ruling == nil:
		s.ruling = time.AfterFunc(due.Sub(now), func() { s.judge(func(time.Time) {}) })
	default:
		s.ruling.Reset(due.Sub(now))
	}
}

// lost tells the council that a node has lost another, and asks both for a sign of
// life. The lock is held.
func (s *Server) lost(now time.Time, by, to member.NodeID, reason string) {
	if !s.council.Lost(now, by, to, reason) {
		return
	}
	for _, id := range []member.NodeID{by, to} {
		if g := s.guests[id]; g != nil {
			g.out.post(frame(s.ping()))
		}
	}
}

// ping asks for a sign of life, and says when it was asked for.
func (s *Server) ping() wire.JoinPing { return wire.JoinPing{Seq: uint64(time.Since(s.began))} }

// asked is when a ping was sent that has come back.
func (s *Server) asked(m wire.JoinPing, now time.Time) time.Time {
	if m.Seq > uint64(now.Sub(s.began)) {
		return now // which nobody has asked
	}
	return s.began.Add(time.Duration(m.Seq))
}

// change makes the view that a ruling leads to, and tells all nodes: those that
// stay what it is, and those that go why. The lock is held.
func (s *Server) change(r member.Ruling) {
	before := s.view
	view, err := s.state.Apply(r.Entry)
	if err != nil {
		panic("seed: the council rules what makes no sense: " + err.Error())
	}
	s.view = view
	s.council.Adopt(view)
	for _, id := range r.Entry.IDs {
		rank, _ := before.Rank(id)
		s.log.Info("node is no longer in the world", "epoch", view.Epoch, "node", id, "rank", rank, "reason", r.Reasons[id])
		if g := s.guests[id]; g != nil {
			g.out.close(frame(wire.JoinFailed{Text: r.Reasons[id]}))
		}
	}
	b, err := wire.AppendJoin(nil, viewMessage(view))
	if err != nil {
		s.log.Error("view cannot be sent", "epoch", view.Epoch, "err", err)
		return
	}
	for _, n := range view.Nodes {
		if g := s.guests[n.ID]; g != nil {
			g.out.post(b)
		}
	}
}
