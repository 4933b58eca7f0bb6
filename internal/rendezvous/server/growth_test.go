package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
)

// elastic configures a world of an initial size that admits others.
func elastic(world int, change func(*Config)) func(*Config) {
	return func(cfg *Config) {
		cfg.Elastic, cfg.Min = true, 1
		if change != nil {
			change(cfg)
		}
	}
}

// formed returns the nodes of a world that has formed, and the nodes that each of them expects.
func formed(t *testing.T, n int, change func(*Config)) (s *testSeed, sessions []*client.Session, expected []*joiners) {
	t.Helper()
	s = newSeed(t, n, change)
	for i := range n {
		g := new(joiners)
		req := s.request(i)
		req.Expect = g.add
		session, err := s.join(t, req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { session.Close() })
		sessions, expected = append(sessions, session), append(expected, g)
	}
	s.form(t, sessions...)
	return s, sessions, expected
}

// joiners are the nodes that a node expects.
type joiners struct {
	mu   sync.Mutex
	list []membership.Node
}

func (g *joiners) add(nodes []membership.Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, nodes...)
}

func (g *joiners) remove(id membership.NodeID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = slices.DeleteFunc(g.list, func(n membership.Node) bool { return n.ID == id })
}

func (g *joiners) has(id membership.NodeID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := membership.View{Nodes: g.list}.Rank(id)
	return ok
}

func (g *joiners) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprint(g.list)
}

// begin waits for an invitation with a number above after.
func begin(t *testing.T, s *client.Session, after uint64) client.Invitation {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	v, i, err := s.Begin(ctx, after)
	if err != nil || i.Number <= after {
		t.Fatalf("got view %v, invitation %+v, %v", v, i, err)
	}
	return i
}

// confirm has nodes report that they have links to peer.
func confirm(peer *client.Session, sessions ...*client.Session) {
	for _, s := range sessions {
		s.Link(peer.ID, true)
	}
}

// next waits for the view after an epoch.
func next(t *testing.T, s *client.Session, epoch uint64) membership.View {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	v, err := s.Next(ctx, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestJoinAfterQuiescing: a node is invited, the others expect it and are asked to quiesce, and all
// get a view with it when all have quiesced.
func TestJoinAfterQuiescing(t *testing.T) {
	s, sessions, expected := formed(t, 2, elastic(2, nil))
	late := s.mustJoin(t, 2)
	i := begin(t, late, 0)
	if rank, ok := i.View.Rank(late.ID); i.View.Epoch != 1 || i.View.Size() != 3 || !ok || rank != 2 {
		t.Errorf("it is invited to %+v", i)
	}
	for k, session := range sessions {
		until(t, "a node expects the other one", func() bool { return expected[k].has(late.ID) }, expected[k])
		if session.IsQuiescing(1) {
			t.Error("nodes are asked to quiesce before the newcomer is linked")
		}
	}
	late.Linked(i.Number)
	confirm(late, sessions[0])
	s.log.wait(t, "node has links")
	if sessions[0].IsQuiescing(1) {
		t.Error("nodes are asked to quiesce before all have confirmed the links of the newcomer")
	}
	confirm(late, sessions[1])
	for _, session := range sessions {
		until(t, "a node is asked to quiesce", func() bool { return session.IsQuiescing(1) }, s.log)
		session.Quiesced(1, false, time.Minute)
	}
	for rank, session := range append(sessions, late) {
		v := next(t, session, 1)
		if got, _ := v.Rank(session.ID); got != rank || v.Size() != 3 {
			t.Errorf("rank %d is %d of %d", rank, got, v.Size())
		}
	}
	if v, i, err := late.Begin(t.Context(), i.Number); err != nil || i.Number != 0 || v.Size() != 3 {
		t.Errorf("the newcomer begins with view %+v, invitation %+v, %v", v, i, err)
	}
	if err := late.Close(); err != nil {
		t.Error(err)
	}
	if v := next(t, sessions[0], 2); v.Size() != 2 {
		t.Errorf("when it has left there are %d nodes", v.Size())
	}
}

// TestInvitedAgain: when a node of an invitation is gone, the joining node gets another
// invitation with the others, and is in their next view.
func TestInvitedAgain(t *testing.T) {
	s, sessions, _ := formed(t, 3, elastic(3, nil))
	late := s.mustJoin(t, 3)
	first := begin(t, late, 0)
	ctx, stop := late.While(t.Context(), first.Number)
	defer stop()
	if err := sessions[1].Close(); err != nil {
		t.Error(err)
	}
	second := begin(t, late, first.Number)
	if _, there := second.View.Rank(sessions[1].ID); there || second.View.Size() != 3 {
		t.Errorf("it is invited to %+v", second)
	}
	<-ctx.Done()
	late.Linked(first.Number) // obsolete
	late.Linked(second.Number)
	confirm(late, sessions[0], sessions[2])
	until(t, "it is in a view", func() bool {
		for _, session := range []*client.Session{sessions[0], sessions[2]} {
			if v := session.Newest(); session.IsQuiescing(v.Epoch) {
				session.Quiesced(v.Epoch, false, 0)
			}
		}
		v := late.Newest()
		return v.Size() == 3
	}, s.log)
}

// TestDismissed: a node that cannot reach a node of the world is dismissed with an error that
// names it; the others continue.
func TestDismissed(t *testing.T) {
	s, sessions, _ := formed(t, 2, elastic(2, nil))
	late := s.mustJoin(t, 2)
	i := begin(t, late, 0)
	late.Lost(sessions[1].ID, errors.New("no route to it"))
	_, _, err := late.Begin(t.Context(), i.Number)
	d, ok := errors.AsType[*client.DismissedError](err)
	if !ok {
		t.Fatalf("got error %v, want a DismissedError", err)
	}
	says(t, d, nil, "rank 1", "no route to it")
	if sessions[0].IsQuiescing(1) || sessions[0].Gone() {
		t.Error("the others are affected")
	}
}

// TestLeaveAfterQuiescing: a node that quiesces to leave gets ErrLeft, and the others a view without
// it.
func TestLeaveAfterQuiescing(t *testing.T) {
	_, sessions, _ := formed(t, 2, elastic(2, nil))
	sessions[0].Quiesced(1, true, 0)
	sessions[1].Quiesced(1, false, 0)
	if v := next(t, sessions[1], 1); v.Size() != 1 {
		t.Errorf("there are %d nodes", v.Size())
	}
	if _, err := sessions[0].Next(t.Context(), 1); err != client.ErrLeft {
		t.Errorf("got error %v, want %v", err, client.ErrLeft)
	}
}

// TestLateToQuiesce: a node that does not quiesce in time is removed.
func TestLateToQuiesce(t *testing.T) {
	_, sessions, _ := formed(t, 2, elastic(2, nil))
	sessions[0].Quiesced(1, false, 50*time.Millisecond)
	if v := next(t, sessions[0], 1); v.Size() != 1 {
		t.Errorf("there are %d nodes", v.Size())
	}
	_, err := sessions[1].Next(t.Context(), 1)
	if _, removed := errors.AsType[*client.RemovedError](err); !removed {
		t.Errorf("got error %v, want a RemovedError", err)
	}
}

// TestSparesWait: spares join before and after the world has formed, and enter a view only in
// place of a node that has gone.
func TestSparesWait(t *testing.T) {
	s := newSeed(t, 2, nil)
	early := s.request(7)
	early.Spare = true
	spare, err := s.join(t, early)
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close()
	a, b := s.mustJoin(t, 0), s.mustJoin(t, 1)
	s.form(t, a, b)
	spare.Linked(begin(t, spare, 0).Number)
	confirm(spare, a, b)
	time.Sleep(50 * time.Millisecond)
	if a.IsQuiescing(1) {
		t.Error("nodes are asked to quiesce for a spare that is not needed")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if v := next(t, a, 1); v.Size() != 2 || v.Nodes[1].ID != spare.ID {
		t.Errorf("the next view is %+v", v)
	}
}

// TestTooFewWait: a world that is too small gets no view until others join.
func TestTooFewWait(t *testing.T) {
	s, sessions, _ := formed(t, 2, elastic(2, func(cfg *Config) { cfg.Min = 2 }))
	if err := sessions[1].Close(); err != nil {
		t.Error(err)
	}
	heard := func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := sessions[0].Next(ctx, sessions[0].Newest().Epoch)
		return err != nil && strings.Contains(err.Error(), "and waits for others")
	}
	until(t, "the node learns that the world is too small", heard, s.log)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := sessions[0].Next(ctx, 1)
	says(t, err, context.DeadlineExceeded, "the world has 1 of at least 2 nodes, and waits for others")
	late := s.mustJoin(t, 2)
	late.Linked(begin(t, late, 0).Number)
	confirm(late, sessions[0])
	if v := next(t, sessions[0], 1); v.Size() != 2 {
		t.Errorf("there are %d nodes", v.Size())
	}
	if heard() {
		t.Error("the node holds the next view for too small")
	}
}

// TestUnexpectedGrowthMessages: unexpected messages are ignored, or end the connection of their
// sender; the world does not change.
func TestUnexpectedGrowthMessages(t *testing.T) {
	s, sessions, _ := formed(t, 2, elastic(2, nil))
	sessions[0].Linked(1)
	sessions[0].Quiesced(7, true, 0)
	late := s.mustJoin(t, 2)
	i := begin(t, late, 0)
	late.Linked(i.Number + 1)
	late.Quiesced(1, false, 0)
	late.Lost(membership.NodeID{9}, errors.New("unknown"))
	time.Sleep(50 * time.Millisecond)
	for _, session := range append(sessions, late) {
		if session.Gone() || session.IsQuiescing(1) {
			t.Error("the world has changed")
		}
	}
	if st := s.Status(); st.View.Epoch != 1 {
		t.Errorf("it is epoch %d", st.View.Epoch)
	}
}

// TestKeyTwice: no key is admitted twice, as a node or as a spare.
func TestKeyTwice(t *testing.T) {
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	s := newSeed(t, 2, elastic(2, nil))
	ask := func(spare bool) (*client.Session, error) {
		req := s.request(0)
		req.Key, req.Spare = key, spare
		return s.join(t, req)
	}
	first, err := ask(false)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		for _, spare := range []bool{false, true} {
			if _, err := ask(spare); err == nil || !strings.Contains(err.Error(), "was used before") {
				t.Errorf("%s, as a spare %v: got error %v", when, spare, err)
			}
		}
	}
	refused("while the world forms")
	second := s.mustJoin(t, 1)
	s.form(t, first, second)
	refused("in a world")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if v := next(t, second, 1); v.Size() != 1 {
		t.Errorf("there are %d nodes", v.Size())
	}
	refused("after it has left")
}
