package server

import (
	"context"

	"github.com/nexar-go/nexar/internal/membership"
)

// An Event says that a node has joined or gone, or that a seed leads.
type Event struct {
	Leader string // address of the seed that leads; no other field is set then

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
