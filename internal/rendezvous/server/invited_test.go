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
	dead     sync.Map     // the IDs of nodes with processes that have ended
	refused  sync.Map     // the IDs of nodes with hosts that refuse connections of the seed
	mute     atomic.Bool  // hosts do not say that a process has ended
	slow     atomic.Bool  // nodes that connect again need a second
	forgot   atomic.Int32 // how often a node has forgotten a joining one
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
	req.Forget = func(membership.NodeID) { s.forgot.Add(1) }
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

// restart is again, and waits until all nodes have connected to the seed.
func (s *durableSeed) restart(meanwhile func()) {
	s.t.Helper()
	s.again(meanwhile)
	for _, node := range s.sessions {
		until(s.t, "a node is back", func() bool { return s.conn(node.ID) != nil }, s.log)
	}
}

// again ends the seed, calls meanwhile, and starts the seed again.
func (s *durableSeed) again(meanwhile func()) {
	s.t.Helper()
	s.Close()
	synctest.Wait()
	meanwhile()
	var err error
	if s.Server, err = Serve(s.cfg); err != nil {
		s.t.Fatal(err)
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

// TestNewcomerReturnsLater: a joining node connects to a seed that was restarted some seconds after the others, and within Limits.Away. They
// have not forgotten it: they would end the links that it makes for its next invitation.
func TestNewcomerReturnsLater(t *testing.T) {
	inDurableWorld(t, 2, func(t *testing.T, s *durableSeed) {
		late := s.joinAs(2)
		first := begin(t, late, 0)
		synctest.Wait() // The others expect it.
		s.dead.Store(late.ID, true)
		s.restart(func() { time.AfterFunc(s.cfg.Limits.Away/2, func() { s.dead.Delete(late.ID) }) })
		second := begin(t, late, first.Number)
		if n := s.forgot.Load(); n > 0 {
			t.Errorf("%d nodes have forgotten the newcomer before it was back", n)
		}
		s.enter(second.Number, 1)
		time.Sleep(s.cfg.Limits.Away)
		for rank, node := range s.sessions {
			if v := node.Newest(); v.Epoch != 2 || v.Size() != 3 || s.forgot.Load() > 0 {
				t.Errorf("rank %d has view %d of %d nodes, want view 2 of 3; %d nodes have forgotten the newcomer", rank, v.Epoch, v.Size(), s.forgot.Load())
			}
		}
	})
}

// TestWorldReturnsLater: a joining node connects to a seed that was restarted some seconds before a node of the world does, which can
// confirm its link only then. The joining node is not dismissed, and enters.
func TestWorldReturnsLater(t *testing.T) {
	inDurableWorld(t, 2, func(t *testing.T, s *durableSeed) {
		late, absent := s.joinAs(2), s.sessions[0]
		first := begin(t, late, 0)
		s.dead.Store(absent.ID, true)
		s.again(func() {})
		second := begin(t, late, first.Number)
		late.Linked(second.Number)
		time.Sleep(s.cfg.Limits.Away / 2)
		s.dead.Delete(absent.ID)
		s.enter(second.Number, 1)
	})
}

// TestNewcomerLosesAbsentNode: a joining node cannot reach a node of the world that has died with the seed, and reports that to the
// restarted seed earlier than the other node does. It gets an invitation to the world without that node, and enters.
func TestNewcomerLosesAbsentNode(t *testing.T) {
	inDurableWorld(t, 2, func(t *testing.T, s *durableSeed) {
		late, absent := s.joinAs(2), s.sessions[0]
		first := begin(t, late, 0)
		s.mute.Store(true)
		s.dead.Store(absent.ID, true)
		s.again(func() {})
		second := begin(t, late, first.Number)
		late.LinksOf(second.Number).Lost(absent.ID, errors.New("no answer"))
		time.Sleep(s.cfg.Limits.Away / 2)
		s.sessions[1].Lost(absent.ID, errors.New("silent"))
		third := begin(t, late, second.Number)
		if v := third.View; v.Epoch != 2 || v.Size() != 2 {
			t.Errorf("the newcomer is invited to view %d with %d nodes, want view 2 with 1 node and the newcomer", v.Epoch, v.Size())
		}
		absent.Close()
		s.sessions = s.sessions[1:]
		s.enter(third.Number, 2)
	})
}

// TestNewcomerDoesNotReturn: a joining node does not connect to a seed that was restarted. The others forget it after Limits.Away.
func TestNewcomerDoesNotReturn(t *testing.T) {
	inDurableWorld(t, 2, func(t *testing.T, s *durableSeed) {
		late := s.joinAs(2)
		begin(t, late, 0)
		synctest.Wait() // The others expect it.
		s.sessions = s.sessions[:2]
		s.dead.Store(late.ID, true)
		began := time.Now()
		s.restart(func() { go late.Close() })
		until(t, "the others forget the newcomer", func() bool { return s.forgot.Load() == 2 }, s.log)
		if after := time.Since(began); after < s.cfg.Limits.Away {
			t.Errorf("the others have forgotten the newcomer after %v, want at least %v", after, s.cfg.Limits.Away)
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
