package server

import (
	"context"
	"sync"

	"github.com/nexar-go/nexar/internal/membership"
)

// An Event says that a node has joined or gone, or that a seed leads.
type Event struct {
	Leader string // address of the seed, in place of all else

	Node membership.Node
	// Rank is that of the node: once the world is full the one it has, before
	// that the one it wants, or membership.AnyRank.
	Rank   int
	Back   bool // it is the conn that has ended, and not the node: it has another one now
	Gone   bool
	Left   bool   // it has gone in good order
	Reason string // why it has gone
	Here   int    // nodes that have a conn to the seed, from now on
}

// events queues events for Follow, so that the server never waits. Joining and leaving nodes
// bound their number.
type events struct {
	mu    sync.Mutex
	queue []Event
	wake  chan struct{} // one token: there is something new
}

func newEvents() *events { return &events{wake: make(chan struct{}, 1)} }

func (e *events) add(event Event) {
	e.mu.Lock()
	e.queue = append(e.queue, event)
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

func (e *events) take() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.queue
	e.queue = nil
	return list
}

// Follow calls f, if it is not nil, for each node that joins or goes, in order.
// It returns when the world did not form, when all its nodes have gone, or when
// ctx ends. Only one goroutine at a time follows a Server.
func (s *Server) Follow(ctx context.Context, f func(Event)) {
	for {
		over := isClosed(s.over) // What comes after that is of no interest.
		for _, event := range s.events.take() {
			if f != nil {
				f(event)
			}
		}
		if over {
			return
		}
		select {
		case <-s.events.wake:
		case <-s.over:
		case <-ctx.Done():
			return
		}
	}
}
