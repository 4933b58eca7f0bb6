package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/transport"
)

// A durableSeed is a seed with a replicated log in fake time, and its nodes. Connections are TLS over pipes in memory.
type durableSeed struct {
	*testSeed
	t        *testing.T
	cfg      Config
	sessions []*client.Session
	dead     sync.Map    // the IDs of nodes with processes that have ended
	refused  sync.Map    // the IDs of nodes with hosts that refuse connections of the seed
	mute     atomic.Bool // hosts do not say that a process has ended
	slow     atomic.Bool // nodes that connect again need a second
}

// inDurableWorld calls f with a seed, in fake time. Its world of n nodes has formed.
func inDurableWorld(t *testing.T, n int, f func(t *testing.T, s *durableSeed)) {
	t.Helper()
	inSeedWorld(t, n, t.TempDir(), f)
}

// inSeedWorld is inDurableWorld with a seed that has its state in dir, or has none if dir is empty.
func inSeedWorld(t *testing.T, n int, dir string, f func(t *testing.T, s *durableSeed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		l := newPipeListener(t, ca)
		s := &durableSeed{t: t}
		s.testSeed = serveOver(t, l, ca, l.dial, n, elastic(n, func(cfg *Config) {
			cfg.Limits = handshake.Limits{Hello: time.Minute, Step: time.Minute, Ping: time.Second, Silence: 20 * time.Second, Away: 30 * time.Second, Return: time.Minute}
			if dir != "" {
				cfg.Replication = &Replication{Self: l.Addr(), Seeds: []string{l.Addr()}, Dir: dir, Open: openLog}
			}
			cfg.HasEnded = func(_ context.Context, n membership.Node) bool {
				_, dead := s.dead.Load(n.ID)
				_, refused := s.refused.Load(n.ID)
				return refused || dead && !s.mute.Load()
			}
			s.cfg = *cfg
		}))
		s.cfg.Token = s.token
		defer func() {
			for _, node := range s.sessions {
				node.Close()
			}
			s.Close()
			l.Close()
		}()
		for i := range n {
			s.joinAs(i)
		}
		s.form(t, s.sessions...)
		f(t, s)
	})
}

// joinAs lets the i-th node join.
func (s *durableSeed) joinAs(i int) *client.Session {
	s.t.Helper()
	req := s.request(i)
	req.Limits = handshake.Limits{Silence: s.cfg.Limits.Silence}
	var id atomic.Pointer[membership.NodeID]
	dial := func(ctx context.Context, addr string) (transport.Conn, error) {
		if id := id.Load(); id != nil {
			if _, dead := s.dead.Load(*id); dead {
				return nil, errors.New("the process is dead")
			}
			if s.slow.Load() {
				time.Sleep(time.Second)
			}
		}
		return s.dial(ctx, addr)
	}
	node, err := client.Seeds{Addrs: []string{s.addr}, Dial: dial}.Join(s.t.Context(), req)
	if err != nil {
		s.t.Fatal(err)
	}
	id.Store(&node.ID)
	s.sessions = append(s.sessions, node)
	return node
}

// restart ends the seed, calls meanwhile, and starts the seed again. It waits until all nodes have connected to it.
func (s *durableSeed) restart(meanwhile func()) {
	s.t.Helper()
	s.Close()
	synctest.Wait()
	meanwhile()
	var err error
	if s.Server, err = Serve(s.cfg); err != nil {
		s.t.Fatal(err)
	}
	for _, node := range s.sessions {
		until(s.t, "a node is back", func() bool { return s.conn(node.ID) != nil }, s.log)
	}
}

// enter lets the last node enter the world with the links for an invitation.
func (s *durableSeed) enter(number, epoch uint64) {
	s.t.Helper()
	last := len(s.sessions) - 1
	late := s.sessions[last]
	late.Linked(number)
	confirm(late, s.sessions[:last]...)
	for _, node := range s.sessions[:last] {
		until(s.t, "a node is asked to quiesce", func() bool { return node.IsQuiescing(epoch) }, s.log)
		node.Quiesced(epoch, false, time.Minute)
	}
	for _, node := range s.sessions {
		next(s.t, node, epoch)
	}
}

// TestLossBeforeNextInvitation: a joining node loses its links while the seed is restarted, since the world forgets it. It gets another
// invitation, makes other links and enters. After another restart the node does not repeat the losses, and the view stays.
func TestLossBeforeNextInvitation(t *testing.T) {
	inDurableWorld(t, 2, func(t *testing.T, s *durableSeed) {
		late := s.joinAs(2)
		first := begin(t, late, 0)
		late.Linked(first.Number)
		links := late.LinksOf(first.Number)
		closed := errors.New("closed by the peer")
		s.restart(func() { links.Lost(s.sessions[0].ID, closed) })
		second := begin(t, late, first.Number)
		links.Lost(s.sessions[1].ID, closed) // It ends the links for the first invitation after it has the second one.
		s.enter(second.Number, 1)
		s.restart(func() {})
		time.Sleep(10 * time.Second) // A lost link is decided within a second.
		for rank, node := range s.sessions {
			if v := node.Newest(); v.Epoch != 2 || v.Size() != 3 {
				t.Errorf("rank %d has view %d of %d nodes, want view 2 of 3\n%v", rank, v.Epoch, v.Size(), s.log)
			}
		}
	})
}

// TestLossAfterInvitation: if a node loses links that it had when it entered, that counts, also after a restart of the seed.
func TestLossAfterInvitation(t *testing.T) {
	inDurableWorld(t, 3, func(t *testing.T, s *durableSeed) {
		late := s.joinAs(3)
		i := begin(t, late, 0)
		s.enter(i.Number, 1)
		s.restart(func() { late.LinksOf(i.Number).Lost(s.sessions[0].ID, errors.New("silent")) })
		for _, node := range s.sessions[1:] {
			v := next(t, node, 2)
			if _, in := v.Rank(s.sessions[0].ID); in || v.Size() != 3 {
				t.Errorf("view %v, want one without rank 0", v)
			}
			if !node.IsQuiescing(2) {
				t.Error("a node does not quiesce in a view that is not the newest")
			}
		}
		_, err := s.sessions[0].Next(t.Context(), 2)
		if _, removed := errors.AsType[*client.RemovedError](err); !removed {
			t.Errorf("rank 0 got %v, want that it was removed", err)
		}
	})
}
