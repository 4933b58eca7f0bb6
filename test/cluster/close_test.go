package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
)

// Most programs end with a barrier or collective, after which each rank closes. The first rank to
// close must not disturb others that are still in the collective.
func TestCloseAfterLastCollective(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"barrier", "all_reduce", "ring"} {
		for range 8 {
			nodes := form(t, 4, nil)
			fine(t, every(nodes, func(c *nexar.Comm) error {
				if err := operations()[what](t.Context(), c, 5000, 1); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				return nodes[c.Rank()].Close()
			}))
		}
	}
}

// Ranks that have finished close at once, though others go on with each other.
func TestCloseAtDifferentTimes(t *testing.T) {
	t.Parallel()
	nodes := form(t, 4, nil)
	fine(t, every(nodes, func(c *nexar.Comm) error {
		if err := allReduce(t.Context(), c, 1000, 1); err != nil {
			return err
		}
		if c.Rank() == 0 {
			return nodes[0].Close()
		}
		time.Sleep(time.Duration(c.Rank()) * 50 * time.Millisecond)
		// Each rank has work left with those after it, and with nobody else.
		x := make([]int64, 70_000)
		if c.Rank() > 1 {
			if _, err := nexar.Recv(t.Context(), c, x, c.Rank()-1, 1); err != nil {
				return err
			}
		}
		if c.Rank() < c.Size()-1 {
			if err := nexar.Send(t.Context(), c, x, c.Rank()+1, 1); err != nil {
				return err
			}
		}
		return nodes[c.Rank()].Close()
	}))
}

// Messages sent before the sender closed can be received long after.
func TestLastMessages(t *testing.T) {
	t.Parallel()
	const messages = 1000
	nodes := form(t, 3, nil)
	fine(t, every(nodes[:2], func(c *nexar.Comm) error {
		for i := range messages {
			if err := nexar.Send(t.Context(), c, vector(c.Rank(), 20, i), 2, nexar.Tag(i)); err != nil {
				return err
			}
		}
		return nodes[c.Rank()].Close()
	}))
	time.Sleep(100 * time.Millisecond)
	c := nodes[2].World()
	x := make([]int64, 20)
	for i := range messages {
		for from := range 2 {
			if _, err := nexar.Recv(t.Context(), c, x, from, nexar.Tag(i)); err != nil {
				t.Fatalf("message %d of rank %d: %v", i, from, err)
			}
			if err := same("message", x, func(j int) int64 { return value(from, j, i) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := nexar.Recv(t.Context(), c, x, 0, nexar.AnyTag)
	mustHaveLeft(t, 2, err, 0, nodes[0].ID())
}

// A large message is in flight when its sender closes: the receiver gets all of it.
func TestCloseDuringTransfer(t *testing.T) {
	t.Parallel()
	const n = 8 << 20
	nodes := form(t, 2, nil)
	fine(t, every(nodes, func(c *nexar.Comm) error {
		if c.Rank() == 0 {
			if err := nexar.Send(t.Context(), c, vector(0, n, 1), 1, 1); err != nil {
				return err
			}
			return nodes[0].Close()
		}
		x := make([]int64, n)
		if _, err := nexar.Recv(t.Context(), c, x, 0, 1); err != nil {
			return err
		}
		return same("message", x, func(i int) int64 { return value(0, i, 1) })
	}))
}

// A rank that closes while others need it is named to all of them.
func TestCloseTooEarly(t *testing.T) {
	t.Parallel()
	const early = 1
	for _, what := range []string{"barrier", "all_reduce", "recv"} {
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} { // before, or while others wait
			t.Run(fmt.Sprint(what, " ", wait), func(t *testing.T) {
				nodes := form(t, 5, nil)
				id := nodes[early].ID()
				for rank, err := range every(nodes, func(c *nexar.Comm) error {
					switch {
					case c.Rank() == early:
						time.Sleep(wait)
						return nodes[early].Close()
					case wait == 0:
						time.Sleep(100 * time.Millisecond)
					}
					if what == "recv" {
						_, err := nexar.Recv(t.Context(), c, make([]int64, 1), early, 1)
						return err
					}
					return operations()[what](t.Context(), c, 100_000, 1)
				}) {
					if rank != early {
						mustHaveLeft(t, rank, err, early, id)
					} else if err != nil {
						t.Errorf("closing: %v", err)
					}
				}
			})
		}
	}
}

// mustHaveLeft wants an error that says that a rank has left in good order.
func mustHaveLeft(t *testing.T, rank int, err error, left int, id nexar.NodeID) {
	t.Helper()
	e, ok := errors.AsType[*nexar.PeerError](err)
	if !ok || !errors.Is(err, nexar.ErrPeerFailed) || e.Rank != left || e.Node != id || !e.Left {
		t.Errorf("rank %d: error %v, want that rank %d has left", rank, err, left)
	}
}

// A world that has formed does not need its seed.
func TestSeedKilled(t *testing.T) {
	t.Parallel()
	c := newCrew(t)
	seed, team := c.enlist(4)
	running := make([]<-chan report, len(team))
	for i, w := range team {
		running[i] = w.start(order{Do: "loop", What: "all_reduce", N: 20_000, Sets: 300})
	}
	seed.kill(os.Kill)
	ok(t, await(team, running))
	ok(t, all(team, order{Do: "check"}))
	for i, r := range all(team, order{Do: "close"}) {
		if r.Failure != nil || r.Took > 3*slowMax {
			t.Errorf("worker %d: close took %v: %v", i, r.Took, r.Failure)
		}
	}
}

// A node that stops waiting for the world leaves nothing behind, and the others get an error that names
// it.
func TestCancelJoin(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	why := errors.New("interrupted")
	// The moments at which a world of 3 is interrupted: from the search for the
	// seed to when it has formed.
	for after := time.Duration(0); after < 30*time.Millisecond; after += time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			token := nexar.NewToken()
			s := seedHere(t, 3, nexar.SeedConfig{Token: token, FormTimeout: 10 * time.Second})
			ctx, cancel := context.WithCancelCause(t.Context())
			result := make(chan error, 1)
			go func() { result <- joinAndLeave(ctx, nodeConfig(s, token)) }()
			rest, stop := context.WithCancel(t.Context())
			defer stop()
			others := make(chan error, 2)
			for range cap(others) {
				go func() { others <- joinAndLeave(rest, nodeConfig(s, token)) }()
			}
			time.Sleep(after)
			cancel(why)
			if err := <-result; err != nil && !errors.Is(err, why) {
				t.Errorf("the one that was interrupted: error %v, want %v", err, why)
			}
			// The others have formed a world, or are told that one of them has
			// gone, or wait for a third one in vain.
			time.AfterFunc(200*time.Millisecond, stop)
			for range cap(others) {
				err := <-others
				if err != nil && !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "went away before the world was formed") {
					t.Errorf("one of the others: %v", err)
				}
			}
		})
	}
}

// joinAndLeave closes the node as soon as it has joined.
func joinAndLeave(ctx context.Context, cfg nexar.Config) error {
	n, err := nexar.Join(ctx, cfg)
	if err != nil {
		return err
	}
	return n.Close()
}

// A node that waits for others for a long time ends at once when it is told
// to.
func TestCancelWaiting(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("world", func(t *testing.T) {
		token := nexar.NewToken()
		log, lines := logTo(t, "seed")
		s := seedHere(t, 2, nexar.SeedConfig{Token: token, Log: log})
		ctx, cancel := context.WithCancel(t.Context())
		waitCancel := make(chan time.Time, 1)
		go func() {
			waitFor(t, func() bool { return strings.Contains(lines.String(), "joined=1") })
			cancel()
			waitCancel <- time.Now()
		}()
		_, err := nexar.Join(ctx, nodeConfig(s, token))
		if took := time.Since(<-waitCancel); !errors.Is(err, context.Canceled) || took > slowMax {
			t.Errorf("%v after it was cancelled: %v", took, err)
		}
		// It says so, unless it was cancelled before it knew that it had joined.
		waitFor(t, func() bool {
			return strings.Contains(lines.String(), "node left") || strings.Contains(lines.String(), "node is gone")
		})
	})
}
