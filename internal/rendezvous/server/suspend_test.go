package server

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/transport"
)

// suspend stops the loop of a seed for a time, as a process that is stopped, and calls meanwhile.
func (s *durableSeed) suspend(long time.Duration, meanwhile func()) {
	s.t.Helper()
	resumed := make(chan struct{})
	go func() {
		s.call(func() { time.Sleep(long) })
		close(resumed)
	}()
	synctest.Wait()
	meanwhile()
	<-resumed
}

// die ends the process of a node, and has others report that they have lost it.
func (s *durableSeed) die(rank int, reporters ...int) {
	s.t.Helper()
	dead := s.sessions[rank]
	s.dead.Store(dead.ID, true)
	dead.Break()
	for _, r := range reporters {
		s.sessions[r].Lost(dead.ID, errors.New("killed"))
	}
	go dead.Close() // The end of the world waits for it.
}

// stays checks that some nodes are the whole world of the next view, now and a while later.
func (s *durableSeed) stays(nodes ...*client.Session) {
	s.t.Helper()
	for _, node := range nodes {
		next(s.t, node, 1)
	}
	for range 2 {
		for i, node := range nodes {
			v := node.Newest()
			if _, in := v.Rank(node.ID); !in || v.Size() != len(nodes) {
				s.t.Errorf("node %d has view %d of %d nodes, in it: %v; want one of %d\n%v", i, v.Epoch, v.Size(), in, len(nodes), s.log)
			}
		}
		time.Sleep(2 * s.lim.Away)
	}
}

// TestSuspendedSeed: a process ends while a seed is suspended for longer than its nodes wait. When it continues, it removes that
// node alone, and at once: the others have left it and return.
func TestSuspendedSeed(t *testing.T) {
	inDurableWorld(t, 4, func(t *testing.T, s *durableSeed) {
		s.suspend(s.lim.Silence, func() { s.die(2, 0, 1, 3) })
		began := time.Now()
		for _, rank := range []int{0, 1, 3} {
			next(t, s.sessions[rank], 1)
		}
		if took := time.Since(began); took > s.lim.Away/2 {
			t.Errorf("the node is removed after %v, want less than the time to return, %v", took, s.lim.Away)
		}
		s.stays(s.sessions[0], s.sessions[1], s.sessions[3])
	})
}

// TestSuspendedSeedWithoutProof: if a host does not say that a process has ended, the node is removed when the time to return is over.
func TestSuspendedSeedWithoutProof(t *testing.T) {
	inDurableWorld(t, 4, func(t *testing.T, s *durableSeed) {
		s.mute.Store(true)
		s.suspend(s.lim.Silence, func() { s.die(2, 0, 1, 3) })
		began := time.Now()
		next(t, s.sessions[0], 1)
		if took := time.Since(began); took < s.lim.Away-10*time.Second {
			t.Errorf("the node is removed after %v, want the time to return, %v", took, s.lim.Away)
		}
		s.stays(s.sessions[0], s.sessions[1], s.sessions[3])
	})
}

// TestSuspendedSeedWithoutState: nodes give up a seed without state after its silence, and return when it continues. It removes the one
// that has ended meanwhile.
func TestSuspendedSeedWithoutState(t *testing.T) {
	inSeedWorld(t, 4, "", func(t *testing.T, s *durableSeed) {
		s.suspend(2*s.lim.Silence, func() {
			s.die(2, 0, 1, 3)
			if _, err := s.sessions[0].Next(t.Context(), 1); !errors.Is(err, client.ErrSeedGone) || !s.sessions[0].Gone() {
				t.Errorf("while the seed is silent: %v, want ErrSeedGone", err)
			}
		})
		for _, rank := range []int{0, 1, 3} {
			until(t, "the node has returned", func() bool { return !s.sessions[rank].Gone() }, s.log)
		}
		s.stays(s.sessions[0], s.sessions[1], s.sessions[3])
	})
}

// TestShortSuspension: a seed that is suspended while it waits for answers, for less than its nodes wait for it, reads them before
// it decides.
func TestShortSuspension(t *testing.T) {
	inDurableWorld(t, 3, func(t *testing.T, s *durableSeed) {
		s.mute.Store(true)
		s.die(2, 0)
		synctest.Wait() // The seed has asked both, and waits for 200 ms.
		s.suspend(3*time.Second, func() {})
		resumed := time.Now()
		next(t, s.sessions[0], 1)
		if took := time.Since(resumed); took < 190*time.Millisecond || took > time.Second {
			t.Errorf("the silent node is removed after %v, want 200 ms: the seed asks again", took)
		}
		s.stays(s.sessions[0], s.sessions[1])
	})
}

// TestFailedWrite: a write to a node fails, which the transport reports as the end of the peer. The node lives, and has not returned yet
// when another one is removed.
func TestFailedWrite(t *testing.T) {
	inDurableWorld(t, 4, func(t *testing.T, s *durableSeed) {
		s.slow.Store(true)
		s.conn(s.sessions[3].ID).Conn.Conn.(countedConn).end(fmt.Errorf("%w: %w", transport.ErrPeerGone, syscall.EPIPE))
		s.die(2, 0, 1)
		s.stays(s.sessions[0], s.sessions[1], s.sessions[3])
	})
}

// TestRefusedByFirewall: a firewall refuses the connections of the seed to a node that lives. The node loses its connection to the seed, and has
// not returned yet when another node is removed.
func TestRefusedByFirewall(t *testing.T) {
	inDurableWorld(t, 4, func(t *testing.T, s *durableSeed) {
		s.slow.Store(true)
		s.refused.Store(s.sessions[3].ID, true)
		s.conn(s.sessions[3].ID).Conn.Conn.(countedConn).end(fmt.Errorf("%w: %w", transport.ErrPeerGone, syscall.EPIPE))
		s.die(2, 0, 1)
		s.stays(s.sessions[0], s.sessions[1], s.sessions[3])
	})
}
