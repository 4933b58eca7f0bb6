package worldtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

// Patience is the timeout for events that take milliseconds on an idle machine.
const Patience = time.Minute

// ErrCancelled is the cause of contexts that tests cancel.
var ErrCancelled = errors.New("cancelled by the test")

// ForEach calls f for n ranks concurrently, and joins the errors.
func ForEach(n int, f func(rank int) error) error {
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			if err := f(rank); err != nil {
				errs[rank] = fmt.Errorf("rank %d of %d: %w", rank, n, err)
			}
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

// OnAll calls f for all ranks concurrently. An error of a rank ends the test.
func OnAll(t testing.TB, comms []*nexar.Comm, f func(rank int, c *nexar.Comm) error) {
	t.Helper()
	if err := ForEach(len(comms), func(rank int) error { return f(rank, comms[rank]) }); err != nil {
		t.Fatal(err)
	}
}

// Mix returns a hash of x: the output of SplitMix64 for the state x (Steele, Lea and Flood, "Fast
// Splittable Pseudorandom Number Generators", OOPSLA 2014).
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// HasText reports whether err is not nil and its text contains text.
func HasText(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// AllTrials reports whether tests of combinations run all of them, as "make trials" does; see [require.AllTrials].
func AllTrials() bool { return require.AllTrials() }

// Brief reports whether long tests run only some of their trials, since the race detector is on. All trials have the
// same goroutines, so some are enough to find races.
func Brief() bool { return require.Race && !AllTrials() }

// Thin returns the number n for tests that run one of n combinations: sample with AllTrials, and
// a multiple of it otherwise.
func Thin(sample uint64) uint64 {
	switch {
	case AllTrials():
		return sample
	case require.Race:
		return 384 * sample
	}
	return 48 * sample
}

// Setup prepares the test binary of a package; call it from TestMain. It fixes the seed of
// random tests, unless -rapid.seed sets one, and removes the configuration of nodes from
// the environment.
func Setup() {
	flag.Parse()
	clearEnv()
	flags := map[string]string{"rapid.seed": "20260607", "rapid.nofailfile": "true"}
	switch {
	case AllTrials():
	case require.Race:
		flags["rapid.checks"] = "8"
	default:
		flags["rapid.checks"] = "25"
	}
	for name, value := range flags {
		if f := flag.Lookup(name); f != nil && f.Value.String() == f.DefValue {
			if err := f.Value.Set(value); err != nil {
				panic(err)
			}
		}
	}
}

// clearEnv removes the variables that configure nodes from the environment.
func clearEnv() {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "NEXAR_") && name != "NEXAR_REQUIRE" {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
}

// Local returns the ranks of a new world of [nexar.Local]. The end of the test closes them.
func Local(t testing.TB, n int, cfg nexar.Config) []*nexar.Comm {
	t.Helper()
	if cfg.CollectiveTimeout == 0 {
		cfg.CollectiveTimeout = 3 * time.Minute
	}
	comms, err := nexar.Local(t.Context(), n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ForEach(n, func(rank int) error { return comms[rank].Close() }); err != nil {
			t.Errorf("close: %v", err)
		}
		clear(comms)
	})
	return comms
}

// JoinAll starts a seed and n nodes, and returns the nodes by rank and the address of the seed. They
// are closed at the end of the test.
func JoinAll(t testing.TB, n int, sc nexar.SeedConfig, cfg nexar.Config) (nodes []*nexar.Node, addr string) {
	t.Helper()
	sc.Listen, sc.World, sc.AllowWeakToken = "127.0.0.1:0", n, true
	seed, err := nexar.StartSeed(t.Context(), sc)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Seeds, cfg.Listen = []string{seed.Addr()}, "127.0.0.1:0"
	nodes = make([]*nexar.Node, n)
	err = ForEach(n, func(rank int) (err error) {
		cfg := cfg
		cfg.Rank = &rank
		nodes[rank], err = nexar.Join(t.Context(), cfg)
		return err
	})
	t.Cleanup(func() {
		err := ForEach(len(nodes), func(rank int) error {
			if nodes[rank] == nil {
				return nil
			}
			return nodes[rank].Close()
		})
		if err := errors.Join(err, seed.Close()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return nodes, seed.Addr()
}

// Twice returns two communicators of the same n ranks over the same connections.
func (m Medium) Twice(t testing.TB, n int) (a, b []*nexar.Comm) {
	t.Helper()
	a, b = m.Cluster(t, n, nexar.Config{}), make([]*nexar.Comm, n)
	OnAll(t, a, func(rank int, c *nexar.Comm) (err error) {
		b[rank], err = c.Dup(t.Context())
		return err
	})
	return a, b
}

// RecvError receives a message of one number and returns only the error.
func RecvError(ctx context.Context, c *nexar.Comm, from int, tag nexar.Tag) error {
	_, err := nexar.Recv(ctx, c, make([]int32, 1), from, tag)
	return err
}

// CheckWorks runs an all-reduce and a barrier, and fails the test if one of them fails.
func CheckWorks(t *testing.T, comms []*nexar.Comm) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		x := []int64{int64(rank)}
		if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
			return err
		}
		if want := int64(c.Size() * (c.Size() - 1) / 2); x[0] != want {
			return fmt.Errorf("sum = %d, want %d", x[0], want)
		}
		return c.Barrier(ctx)
	})
}

// Revoke ends a communicator on all ranks by a call that is cancelled with cause.
func Revoke(c *nexar.Comm, cause error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	h := c.StartBarrier(ctx)
	cancel(cause)
	_ = h.Wait() // It returns cause.
}
