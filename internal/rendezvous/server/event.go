package server

import (
	"context"
	"net/netip"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// remindForming reports at growing intervals the nodes that the world lacks, in the present phase of its formation.
func (s *Server) remindForming() {
	l, began, phase, pause := s.state.leader, time.Now(), s.state.leader.form.Phase(), wake.RemindAfter
	l.forming.stop()
	var remind func()
	remind = func() {
		if l.form.Phase() == phase && phase <= membership.Connecting && l.form.Joined() > 0 {
			s.reportForming(l, time.Since(began))
			pause = min(2*pause, wake.RemindMax)
			l.forming = s.afterAsLeader(pause, remind)
		}
	}
	l.forming = s.afterAsLeader(pause, remind)
}

// reportForming emits an event with the nodes that the forming world lacks, and lets a node of each other host log it. The seed reports for
// nodes at loopback addresses, unless these know the connections that they lack.
func (s *Server) reportForming(l *leader, waited time.Duration) {
	c := trace.Cluster{Epoch: s.state.cluster.view.Epoch, World: s.cfg.World, Joined: l.form.Joined()}
	for _, r := range s.newPoll(l, wire.Brief).reports {
		c.Nodes = append(c.Nodes, trace.Node{Rank: int(r.Rank), Name: r.Name, Missing: r.Missing})
	}
	s.emit(Event{Forming: c.Sentence(), Waited: waited.Round(100 * time.Millisecond)})
	p, loggers := l.form.Awaited()
	p.Waited = uint32(waited.Milliseconds())
	isFull := l.form.Phase() == membership.Connecting
	for _, id := range loggers {
		conn := l.nodes[id]
		if conn == nil {
			continue
		}
		if origin, err := netip.ParseAddr(conn.origin); err == nil && origin.IsLoopback() && (!isFull || l.form.IsConnected(id)) {
			continue
		}
		conn.out.Post(handshake.Frame(wire.JoinProgress(p)))
	}
}

// An Event says that a node has joined or gone, that a seed leads, or that a forming world lacks nodes.
type Event struct {
	Leader string // address of the seed that leads; no other field is set then

	Forming string        // the nodes that the forming world lacks; no other field but Waited is set then
	Waited  time.Duration // since the first node has joined or, once all have, since the last

	Node membership.Node
	// Rank is the rank of the node: its actual rank once the world is full, before that the
	// requested rank or membership.AnyRank.
	Rank        int
	Reconnected bool // the node has reconnected
	Gone        bool
	Left        bool   // it has left on its own
	Reason      string // why it has gone
	Here        int    // number of nodes that have a connection to the seed after the event
}

// emit queues an event for Follow. Joining and leaving nodes bound the length of the queue.
func (s *Server) emit(e Event) {
	s.state.events = append(s.state.events, e)
	s.notify()
}

// Follow calls f, if it is not nil, for each event, in order. It returns when the world failed
// to form, when all its nodes have gone, or when ctx ends. Only one goroutine at a time may
// call it.
func (s *Server) Follow(ctx context.Context, f func(Event)) {
	for over := false; !over; {
		var events []Event
		ok := s.await(ctx, func() bool {
			events, s.state.events, over = s.state.events, nil, s.state.over
			return over || len(events) > 0
		})
		if !ok {
			return
		}
		for _, e := range events {
			if f != nil {
				f(e)
			}
		}
	}
}
