package client

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// An Invitation asks a node to link itself to the nodes of a world that has formed,
// and to others that join it as far as it can reach them: those of View, the last of
// which it is. Its epoch is that of the world.
type Invitation struct {
	Number uint64 // higher than those before; 0: none
	World  int    // how many nodes of View are in the world, the first ones: it needs links to all of these
	View   membership.View
}

// Begin waits for the first view, when the world is full, or for an invitation with a number
// above after, if the world has formed without this node. An invited node links itself to all
// nodes of the invitation, and calls Linked. Then the next view contains it, or it gets
// another invitation in place of the first.
func (s *Session) Begin(ctx context.Context, after uint64) (membership.View, Invitation, error) {
	for {
		s.mu.Lock()
		v, i, changed := s.view, s.invited, s.changed
		s.mu.Unlock()
		switch {
		case v.Epoch > 0:
			return v, Invitation{}, nil
		case i.Number > after:
			return membership.View{}, i, nil
		}
		if err := s.wait(ctx, changed); err != nil {
			return membership.View{}, Invitation{}, err
		}
	}
}

// WhileInvited is While, until there is an invitation with a number above that.
func (s *Session) WhileInvited(ctx context.Context, number uint64) (context.Context, context.CancelFunc) {
	ctx, stop := s.While(ctx)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, i, err := s.Begin(ctx, number); err == nil && i.Number > number {
			cancel()
		}
	}()
	return ctx, func() {
		cancel()
		<-done
		stop()
	}
}

// Linked says that this node is linked to all nodes of the world that an invitation
// names. The seed believes it when these confirm it. It does not wait.
func (s *Session) Linked(number uint64) { s.Post(wire.JoinLinked{Number: number}) }

// IsCalled reports whether the nodes of a view are called to rest, so that others
// can join.
func (s *Session) IsCalled(epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.called == epoch && !isClosed(s.absent)
}

// Rest says that this node is at rest in a view, and whether it leaves. The seed
// removes nodes that are not at rest within a time; 0 is without limit. It does not
// wait.
func (s *Session) Rest(epoch uint64, leaves bool, within time.Duration) {
	ms := min(within.Milliseconds(), math.MaxUint32)
	if within > 0 {
		ms = max(1, ms) // 0 is without limit.
	}
	s.say(wire.JoinRest{Epoch: epoch, Leaves: leaves, Within: uint32(ms)})
}

// Gone reports whether there is no seed any more, as far as it is known.
func (s *Session) Gone() bool { return isClosed(s.Ended()) }

// Ended is closed when there is none: the conn to the seed has ended and, if it is durable,
// it has not been back for a while. If it comes back after all, the next call returns
// another channel.
func (s *Session) Ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.absent
}

// handleGrowth handles messages about nodes that join.
func (s *Session) handleGrowth(m wire.JoinMessage) error {
	switch m := m.(type) {
	case wire.JoinInvite:
		return s.setInvitation(m)
	case wire.JoinExpect:
		nodes := nodesOf(m.Nodes)
		if err := (membership.View{Nodes: nodes}).Check(); err != nil {
			return fmt.Errorf("seed %s sent bad nodes: %w", s.seed, err)
		}
		s.setExpected(nodes, m.Whole)
	case wire.JoinForget:
		s.setForgotten(m.Peer)
	case wire.JoinCall:
		s.mu.Lock()
		s.called = m.Epoch
		s.mu.Unlock()
		s.log.Info("nodes want to join at the next checkpoint", "epoch", m.Epoch)
	}
	return nil
}

func (s *Session) setInvitation(m wire.JoinInvite) error {
	v := membership.View{Epoch: m.Epoch, Nodes: nodesOf(m.Nodes)}
	if err := v.Check(); err != nil {
		return fmt.Errorf("seed %s sent a bad invitation: %w", s.seed, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank, ok := v.Rank(s.ID); !ok || rank != v.Size()-1 || int(m.World) > rank || m.Number <= s.invited.Number || isClosed(s.viewed) {
		return fmt.Errorf("seed %s sent invitation %d to %d nodes after number %d (this node among them: %v)", s.seed, m.Number, v.Size(), s.invited.Number, ok)
	}
	s.invited = Invitation{Number: m.Number, World: int(m.World), View: v}
	close(s.changed)
	s.changed = make(chan struct{})
	s.log.Info("world has formed, this node connects itself to it", "epoch", m.Epoch, "nodes", v.Size()-1)
	return nil
}

func nodesOf(list []wire.JoinNode) (nodes []membership.Node) {
	for _, n := range list {
		nodes = append(nodes, membership.Node{ID: n.ID, Addrs: n.Addrs, Host: n.Host, Name: n.Name, Endpoints: handshake.EndpointsOf(n.Endpoints)})
	}
	return nodes
}
