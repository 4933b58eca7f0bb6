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
			mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error {
				if err := operations()[what](t.Context(), c, 5000, 1); err != nil {
					return fmt.Errorf("%s: %w", what, err)
				}
				return nodes[c.Rank()].Close()
			}))
		}
	}
}

// Ranks close as soon as they have finished, while others still exchange messages.
func TestCloseAtDifferentTimes(t *testing.T) {
	t.Parallel()
	nodes := form(t, 4, nil)
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error {
		if err := allReduce(t.Context(), c, 1000, 1); err != nil {
			return err
		}
		if c.Rank() == 0 {
			return nodes[0].Close()
		}
		time.Sleep(time.Duration(c.Rank()) * 50 * time.Millisecond)
		// Each rank still exchanges messages with its neighbors.
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

// Messages can be received long after their sender has closed.
func TestMessagesOutliveSender(t *testing.T) {
	t.Parallel()
	const messages = 1000
	nodes := form(t, 3, nil)
	mustBeNil(t, onEachNode(nodes[:2], func(c *nexar.Comm) error {
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
			if err := equal("message", x, func(j int) int64 { return value(from, j, i) }); err != nil {
				t.Fatal(err)
			}
		}
	}
	_, err := nexar.Recv(t.Context(), c, x, 0, nexar.AnyTag)
	wantLeft(t, 2, err, 0, nodes[0].ID())
}

// A sender closes while a large message is in flight. The receiver gets all of it.
func TestCloseDuringTransfer(t *testing.T) {
	t.Parallel()
	const n = 8 << 20
	nodes := form(t, 2, nil)
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error {
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
		return equal("message", x, func(i int) int64 { return value(0, i, 1) })
	}))
}

// The errors of all ranks that still need a rank name it after it has closed.
func TestCloseTooEarly(t *testing.T) {
	t.Parallel()
	const early = 1
	for _, what := range []string{"barrier", "all_reduce", "recv"} {
		for _, wait := range []time.Duration{0, 100 * time.Millisecond} { // before, or while others wait
			t.Run(fmt.Sprint(what, " ", wait), func(t *testing.T) {
				nodes := form(t, 5, nil)
				id := nodes[early].ID()
				for rank, err := range onEachNode(nodes, func(c *nexar.Comm) error {
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
						wantLeft(t, rank, err, early, id)
					} else if err != nil {
						t.Errorf("Close: %v", err)
					}
				}
			})
		}
	}
}

// wantLeft checks that an error reports the orderly leave of a rank.
func wantLeft(t *testing.T, rank int, err error, left int, id nexar.NodeID) {
	t.Helper()
	e, ok := errors.AsType[*nexar.PeerError](err)
	if !ok || !errors.Is(err, nexar.ErrPeerFailed) || e.Rank != left || e.Node != id || !e.Left {
		t.Errorf("rank %d: error %v, want a PeerError for rank %d with Left", rank, err, left)
	}
}

// A world that has formed does not need its seed.
func TestSeedKilled(t *testing.T) {
	t.Parallel()
	c := newWorkerSet(t)
	seed, workers := c.startWorldWithSeed(4)
	running := make([]<-chan result, len(workers))
	for i, w := range workers {
		running[i] = w.start(command{Do: "loop", Op: "all_reduce", N: 20_000, Rounds: 300})
	}
	seed.kill(os.Kill)
	mustSucceed(t, awaitAll(workers, running))
	mustSucceed(t, runAll(workers, command{Do: "check"}))
	for i, r := range runAll(workers, command{Do: "close"}) {
		if r.Failure != nil || r.Took > 3*slowMax {
			t.Errorf("worker %d: close took %v: %v", i, r.Took, r.Failure)
		}
	}
}

// A join that is cancelled leaks nothing, and the other nodes get an error.
func TestCancelJoin(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	why := errors.New("interrupted")
	// The moments at which the formation of a world of 3 is interrupted, from the search for
	// the seed until all have joined.
	for after := time.Duration(0); after < 30*time.Millisecond; after += time.Millisecond {
		t.Run(after.String(), func(t *testing.T) {
			token := nexar.NewToken()
			s := startLocalSeed(t, 3, nexar.SeedConfig{Token: token, FormTimeout: 10 * time.Second})
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
				t.Errorf("the cancelled join: error %v, want %v", err, why)
			}
			// The others have formed a world, or get an error about the cancelled node, or
			// wait for a third node until they are cancelled.
			time.AfterFunc(200*time.Millisecond, stop)
			for range cap(others) {
				err := <-others
				if err != nil && !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "went away before the world was formed") {
					t.Errorf("another node: %v", err)
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

// A node that waits for the formation ends promptly when its context is cancelled.
func TestCancelWaiting(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("world", func(t *testing.T) {
		token := nexar.NewToken()
		log, lines := logTo(t, "seed")
		s := startLocalSeed(t, 2, nexar.SeedConfig{Token: token, Log: log})
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
		// The node tells the seed, unless it was cancelled before it knew that it had joined.
		waitFor(t, func() bool {
			return strings.Contains(lines.String(), "node left") || strings.Contains(lines.String(), "node is gone")
		})
	})
}
