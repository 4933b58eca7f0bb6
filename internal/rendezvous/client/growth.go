package client

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/internal/wire"
)

// An Invitation asks a joining node to connect to the nodes of a formed world that it watches or that watch it, and to the other
// joining nodes that it can reach. View contains all of these nodes, the invited one last. Its
// epoch is that of the world.
type Invitation struct {
	Number uint64 // higher than that of the previous invitation; 0: no invitation
	World  int    // the first World nodes of View are in the world: the node needs links to all of them
	View   membership.View
}

// Begin blocks until this node gets its first view, because the world is full, or an invitation
// with a number above after, because the world has formed without this node. An invited node
// connects to the nodes of the invitation and calls Linked. After that it gets a view that
// contains it, or another invitation that replaces the first.
func (s *Session) Begin(ctx context.Context, after uint64) (v membership.View, i Invitation, err error) {
	defer wake.Remind(wake.RemindAfter, s.warnWaiting).Stop()
	return s.begin(ctx, after)
}

// begin is Begin without warnings.
func (s *Session) begin(ctx context.Context, after uint64) (v membership.View, i Invitation, err error) {
	err = s.await(ctx, func() bool {
		v, i = s.view, s.invited
		return v.Epoch > 0 || i.Number > after
	}, s.late)
	switch {
	case err != nil:
		return membership.View{}, Invitation{}, err
	case v.Epoch > 0:
		return v, Invitation{}, nil
	}
	return membership.View{}, i, nil
}

// While returns a context that ends with ctx, with the membership, for example when the seed reports that the world will not form, or when an
// invitation with a higher number arrives. The caller must call the CancelFunc.
func (s *Session) While(ctx context.Context, number uint64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, i, err := s.begin(ctx, number); err == nil && i.Number > number {
			cancel(nil)
		}
	}()
	return ctx, func() {
		stop()
		cancel(nil)
		<-done
	}
}

// Linked reports to the seed that this node has the links that an invitation asks for. The seed waits until the other nodes
// confirm them.
func (s *Session) Linked(number uint64) { s.Post(wire.JoinLinked{Number: number}) }

// Link reports to the seed whether this node has a link to peer, a joining node that it expects or
// that joins at the same time. The seed admits a node only if others confirm its links.
func (s *Session) Link(peer membership.NodeID, up bool) { s.link(latest, peer, up) }

func (s *Session) link(number uint64, peer membership.NodeID, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, in := s.view.Rank(peer); in || s.isObsoleteLocked(number) {
		return
	}
	if up {
		s.links[peer] = true
	} else {
		delete(s.links, peer)
	}
	s.out.Post(handshake.Frame(wire.JoinLink{Peer: peer, Up: up}))
}

// Links reports on the links that this node has made for one invitation. With the next invitation it gives up these links, and other
// nodes may have ended them before: a seed that has just begun to lead does not know the joining nodes, and the world forgets them.
// Such a loss says nothing about the links that the node makes next, so later reports have no effect, and the Session does not
// repeat earlier ones to another seed.
type Links struct {
	session *Session
	number  uint64
}

// LinksOf returns the reports on the links for an invitation. Number is 0 for a node that gets a view without an invitation.
func (s *Session) LinksOf(number uint64) Links { return Links{s, number} }

// latest stands for the number of the latest invitation.
const latest = math.MaxUint64

// isObsoleteLocked reports whether this node has given up the links for an invitation.
func (s *Session) isObsoleteLocked(number uint64) bool { return number < s.invited.Number }

// Link is [Session.Link] for one of these links.
func (l Links) Link(peer membership.NodeID, up bool) { l.session.link(l.number, peer, up) }

// Lost is [Session.Lost] for one of these links.
func (l Links) Lost(peer membership.NodeID, cause error) {
	l.session.lostLink(l.number, peer, wire.LossBroken, cause.Error())
	l.session.withViews(func(f *membership.ViewForwarder) { f.Unreachable(peer) })
}

// Left reports that a peer has said goodbye to this node. The peer tells the seed itself that it leaves, but it may not reach the seed,
// or the seed may fail before it has told the others.
func (l Links) Left(peer membership.NodeID) {
	l.session.lostLink(l.number, peer, wire.LossLeft, "it has left")
}

// IsQuiescing reports whether the nodes of a view must quiesce: the seed has asked them to, so that others can join, or the view
// is no longer the newest. The seed may remove a node that lives and has links to all others, so
// a later view does not imply that an operation fails.
func (s *Session) IsQuiescing(epoch uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.quiescing == epoch || s.view.Epoch > epoch) && s.absent.Err() == nil
}

// Quiesced reports to the seed that this node has quiesced in a view, and whether it leaves. The
// seed removes nodes that have not quiesced within timeout; 0 is no limit.
func (s *Session) Quiesced(epoch uint64, leaves bool, timeout time.Duration) {
	ms := min(timeout.Milliseconds(), math.MaxUint32)
	if timeout > 0 {
		ms = max(1, ms) // 0 is no limit.
	}
	s.report(wire.JoinQuiesced{Epoch: epoch, Leaves: leaves, Timeout: uint32(ms)})
}

func (s *Session) setInvitation(m wire.JoinInvite) error {
	v := membership.View{Epoch: m.Epoch, Nodes: m.Nodes}
	if err := v.Check(); err != nil {
		return fmt.Errorf("seed %s sent a bad invitation: %w", s.seed, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if rank, in := v.Rank(s.ID); !in || rank != v.Size()-1 || int(m.World) > rank || m.Number <= s.invited.Number || s.hasViewLocked() {
		return fmt.Errorf("seed %s sent invitation %d with %d nodes after invitation %d (this node among them: %v)", s.seed, m.Number, v.Size(), s.invited.Number, in)
	}
	s.invited = Invitation{Number: m.Number, World: int(m.World), View: v}
	s.reports, s.links = nil, make(map[membership.NodeID]bool) // See Links.
	s.log.Info("world has formed, this node connects to it", "epoch", m.Epoch, "nodes", v.Size()-1)
	s.notifyLocked()
	return nil
}

// setExpected records joining nodes that the seed has announced: additional ones, or all of them
// if the message is Complete.
func (s *Session) setExpected(m wire.JoinExpect) error {
	nodes := membership.View{Nodes: m.Nodes}
	if err := nodes.Check(); err != nil {
		return fmt.Errorf("seed %s sent bad nodes: %w", s.seed, err)
	}
	s.mu.Lock()
	var gone []membership.NodeID
	for id := range s.expected {
		if _, still := nodes.Rank(id); m.Complete && !still {
			gone = append(gone, id)
		}
	}
	for _, n := range m.Nodes {
		s.expected[n.ID] = true
	}
	s.mu.Unlock()
	if s.req.Expect != nil && len(m.Nodes) > 0 {
		s.req.Expect(m.Nodes)
	}
	for _, id := range gone {
		s.setForgotten(id)
	}
	return nil
}

// setForgotten withdraws the announcement of a node that does not join.
func (s *Session) setForgotten(id membership.NodeID) {
	s.mu.Lock()
	_, in := s.view.Rank(id)
	delete(s.expected, id)
	delete(s.links, id)
	s.mu.Unlock()
	if s.req.Forget != nil && !in {
		s.req.Forget(id)
	}
}
