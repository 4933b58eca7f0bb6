package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// Nodes may join at any seed, and all seeds know that the world has formed.
func TestSeveralSeeds(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCluster(t, n, 4, nil)
			sessions := c.form(4)
			for _, s := range sessions {
				if v, err := s.View(t.Context()); err != nil || v.Size() != 4 || v.Epoch != 1 || s.Identity.Cluster() != sessions[0].Identity.Cluster() {
					t.Errorf("view %v, %v", v, err)
				}
			}
			kill(sessions[2], sessions[0], sessions[1], sessions[3])
			if v := next(t, sessions[0], 1); v.Size() != 3 || v.Epoch != 2 {
				t.Errorf("view %v", v)
			}
		})
	}
}

// When the leading seed has gone, another one leads, with the reports of the nodes.
func TestLeaderGoes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 4, nil)
	sessions := c.form(4)
	old := c.leader()
	c.stop(old)
	// Reports that are sent while no seed leads are not lost.
	kill(sessions[1], sessions[0], sessions[2], sessions[3])
	for _, s := range []*client.Session{sessions[0], sessions[2], sessions[3]} {
		v := next(t, s, 1)
		if _, in := v.Rank(sessions[1].ID); v.Size() != 3 || in { // The ranks are in any order: another seed may have led while the nodes joined.
			t.Errorf("view %v, want it without node %v", v, sessions[1].ID)
		}
	}
	c.start(old)
	// The same with the restarted seed and another one.
	c.stop(c.leader())
	kill(sessions[3], sessions[0], sessions[2])
	if v := next(t, sessions[0], 2); v.Size() != 2 || v.Epoch != 3 {
		t.Errorf("view %v", v)
	}
}

// The world continues when all seeds are restarted.
func TestAllSeedsRestart(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCluster(t, n, 3, elastic(3, func(cfg *Config) { cfg.Limits.Return, cfg.Limits.Away = patience, patience }))
			sessions := c.form(3)
			cluster := sessions[0].Identity.Cluster()
			c.restart()
			kill(sessions[2], sessions[0], sessions[1])
			v := next(t, sessions[0], 1)
			if v.Size() != 2 || v.Epoch != 2 {
				t.Errorf("view %v", v)
			}
			// A node that joins gets an identity of the same cluster, and a rank.
			late, err := c.join(7, 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := late.Identity.Cluster(); got != cluster {
				t.Errorf("cluster %s after the seeds were started again, was %s", got, cluster)
			}
			late.Linked(begin(t, late, 0).Number)
			confirm(late, sessions[:2]...)
			for _, s := range sessions[:2] {
				until(t, "the nodes are asked to quiesce", func() bool { return s.IsQuiescing(2) }, c)
				s.Quiesced(2, false, 0)
			}
			if v := next(t, sessions[0], 2); v.Size() != 3 || v.Nodes[2].ID != late.ID {
				t.Errorf("view %v", v)
			}
		})
	}
}

// Without a majority the seeds decide nothing, and errors of the nodes say so.
func TestMostSeedsGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, nil)
	sessions := c.form(3)
	leader := c.leader()
	gone := []int{leader, (leader + 1) % 3}
	for _, i := range gone {
		c.stop(i)
	}
	kill(sessions[2], sessions[0], sessions[1])
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	v, err := sessions[0].Next(ctx, 1)
	says(t, err, client.ErrSeedGone)
	says(t, err, context.DeadlineExceeded)
	if err == nil {
		t.Errorf("view %v", v)
	}
	c.start(gone[0])
	if v := next(t, sessions[0], 1); v.Size() != 2 {
		t.Errorf("view %v", v)
	}
}

// Calls that wait for a seed return an error when no seed has been reachable for Patience, and
// a view when one is reachable again.
func TestPatience(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, nil)
	var sessions []*client.Session
	for i := range 2 {
		s, err := c.join(i, 0, func(r *client.Request) { r.Patience = 200 * time.Millisecond })
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	c.sessionsReady(sessions)
	c.stop(0)
	_, err := sessions[0].Next(t.Context(), 1)
	says(t, err, client.ErrSeedGone, "no seed was reachable within 200ms")
	if !sessions[0].Gone() {
		t.Error("the session waits for the seed")
	}
	c.start(0)
	until(t, "the seed is back", func() bool { return !sessions[0].Gone() && !sessions[1].Gone() }, c)
	kill(sessions[1], sessions[0])
	if v := next(t, sessions[0], 1); v.Size() != 1 {
		t.Errorf("view %v", v)
	}
}

func (c *testCluster) sessionsReady(sessions []*client.Session) {
	c.t.Helper()
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			if err := s.Ready(c.t.Context()); err != nil {
				c.t.Error(err)
			}
		})
	}
	wg.Wait()
}

// The world forms although the leading seed fails: while nodes join, and while they connect
// to each other.
func TestLeaderGoesWhileForming(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, nil)
	var sessions []*client.Session
	add := func() {
		s, err := c.join(len(sessions), (c.leader()+1)%3, func(r *client.Request) {})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	add()
	add()
	old := c.leader()
	c.stop(old)
	c.leader()
	c.start(old)
	add()
	for _, s := range sessions {
		if v, err := s.View(t.Context()); err != nil || v.Size() != 3 {
			t.Fatalf("view %v, %v", v, err)
		}
	}
	early := make(chan error, 1)
	go func() { early <- sessions[0].Ready(t.Context()) }()
	time.Sleep(50 * time.Millisecond)
	c.stop(c.leader())
	c.sessionsReady(sessions[1:])
	if err := <-early; err != nil {
		t.Error(err)
	}
}

// When all nodes of a world have left, it is over for all seeds. After a restart they begin
// another one, with new epochs.
func TestWorldIsOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, nil)
	ended := make(chan int, 3)
	for i, s := range c.seeds {
		go func() {
			s.Follow(t.Context(), nil)
			ended <- i
		}()
	}
	var last uint64
	for _, s := range c.form(2) {
		v := s.Newest()
		last = v.Epoch
		s.Close()
	}
	for range 3 {
		select {
		case <-ended:
		case <-time.After(patience):
			t.Fatalf("a seed continues\n%v", c)
		}
	}
	for i := range c.seeds {
		if err := c.seeds[i].Status().Err; err != nil {
			t.Errorf("seed %d: %v", i, err)
		}
	}
	c.restart()
	c.leader()
	for i, s := range c.seeds { // They serve the previous world.
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if err := s.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("seed %d: error %v, and the world has yet to form", i, err)
		}
		cancel()
	}
	sessions := c.form(2)
	if v := sessions[0].Newest(); v.Epoch <= last {
		t.Errorf("epoch %d again", v.Epoch)
	}
}

// If all nodes have died with the seeds, a new world begins after Limits.Return.
func TestDesertedWorld(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, elastic(2, nil))
	c.die(c.form(2)...)
	c.restart()
	sessions := c.form(2)
	if v := sessions[0].Newest(); v.Epoch <= 1 {
		t.Errorf("epoch %d again", v.Epoch)
	}
	c.seeds[0].log.wait(t, "no node of the world has come back")
	// In that world nodes join and leave as in any other.
	late, err := c.join(7, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin(t, late, 0)
	for _, s := range append(sessions, late) {
		s.Close()
	}
	c.seeds[0].Follow(t.Context(), nil)
}

// A world that has begun since a seed was restarted ends like any other, also for a seed that
// did not lead, and that was restarted with the state of a deserted world.
func TestWorldAfterDesertedOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, nil)
	c.die(c.form(2)...)
	c.restart()
	c.die(c.form(2)...)
	c.stop(c.leader())
	for i, s := range c.seeds {
		if s == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		s.Follow(ctx, nil)
		if ctx.Err() != nil {
			t.Errorf("the world continues on seed %d\n%v", i, c)
		}
		cancel()
	}
}

// The world is over at once for the seeds when its nodes leave at the same time.
func TestLeaveTogether(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 4, func(cfg *Config) { cfg.Limits.Return = patience })
	sessions := c.form(4)
	began := time.Now()
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() { s.Close() })
	}
	wg.Wait()
	for _, s := range c.seeds {
		s.Follow(t.Context(), nil)
	}
	if d := time.Since(began); d > patience/2 {
		t.Errorf("the seeds waited %v for nodes that had left", d)
	}
	_, err := c.join(4, 0, nil)
	says(t, err, membership.ErrOver, "the world is over")
}

// A world that did not form is over for all seeds, with the same reason.
func TestSeedsLearnOfFailure(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, nil)
	var sessions []*client.Session
	for i := range 2 {
		s, err := c.join(i, i, nil)
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	err := unreachable(t, sessions[0], sessions[1].ID, errors.New("no route"))
	if _, ok := errors.AsType[*client.FailedError](err); !ok {
		t.Errorf("error %v", err)
	}
	for i, s := range c.seeds {
		err := s.Wait(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no route") {
			t.Errorf("seed %d: %v", i, err)
		}
	}
}

func TestSeedTwice(t *testing.T) {
	t.Parallel()
	q := Replication{Self: "a:1", Seeds: []string{"a:1", "b:1", "b:1"}, Dir: t.TempDir(), Open: openLog, Dial: dialTLS}
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(Config{Transport: newTLSTransport(t, joining), Authority: ca, World: 1, Replication: &q})
	if err == nil {
		s.Close()
	}
	says(t, err, nil, `seed "b:1" is twice among`)
}

// A seed with other peers than the rest is refused with an error that says so.
func TestMismatchedSeed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2, nil)
	c.leader()
	conn, err := dialTLS(t.Context(), c.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := handshake.New(conn)
	if _, err := s.Call(t.Context(), c.token, patience); err != nil {
		t.Fatal(err)
	}
	if err := s.Write(time.Now().Add(patience), wire.JoinSeedHello{Seed: idOf("10.9.9.9:7000")}); err != nil {
		t.Fatal(err)
	}
	_, err = s.ReadReply(time.Now().Add(patience))
	says(t, err, handshake.ErrRequest, "--peers has to be the same on all seeds")
}

// The seed learns from the reports of others that a node has left while no seed was running.
func TestLeftWithoutLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 3, nil)
	sessions := c.form(3)
	c.stop(0)
	gone := sessions[2]
	for _, s := range sessions[:2] {
		s.LinksOf(0).Left(gone.ID)
	}
	gone.Close()
	c.start(0)
	if v := next(t, sessions[0], 1); v.Size() != 2 {
		t.Errorf("view %v", v)
	}
	s := c.seeds[0].Server
	s.call(func() {
		if how := s.state.cluster.Gone[gone.ID]; !how.Left {
			t.Errorf("the node that has left counts as failed: %q", how.Reason)
		}
	})
}

// A seed that has lost its state learns it from the others, and then votes: the world
// survives the loss of another seed.
func TestSeedForgetsState(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3, nil)
	sessions := c.form(3)
	lost := (c.leader() + 1) % 3
	c.stop(lost)
	if err := os.RemoveAll(filepath.Join(c.dir, fmt.Sprint(lost))); err != nil {
		t.Fatal(err)
	}
	c.forget = true
	c.start(lost)
	until(t, "the seed votes again", func() bool { return strings.Contains(c.seeds[lost].log.String(), "has caught up, and votes") }, c)
	c.stop((lost + 1) % 3)
	kill(sessions[2], sessions[0], sessions[1])
	if v := next(t, sessions[0], 1); v.Size() != 2 || v.Epoch != 2 {
		t.Errorf("view %v", v)
	}
}
