package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestSplitInLoop: a closed communicator leaves no goroutine and no memory, and its part
// of the shared memory can be used again.
func TestSplitInLoop(t *testing.T) {
	const ranks = 4
	warm, rounds := 200, 2000
	if !worldtest.AllTrials() {
		warm, rounds = 20, 100
	}
	world := worldtest.Mem().Cluster(t, ranks, nexar.Config{})
	split := func(rank, round int, c *nexar.Comm) error {
		child, err := c.Split(t.Context(), (rank>>(round%2))%2, -rank)
		if err != nil {
			return err
		}
		grandchild, err := child.Dup(t.Context())
		if err != nil {
			return err
		}
		shared, err := inSharedMemory(grandchild)
		if !shared && err == nil {
			err = fmt.Errorf("round %d: no shared memory for %d ranks", round, child.Size())
		}
		return errors.Join(err, sumsUp(t.Context(), grandchild), child.Close(), grandchild.Close())
	}
	loop := func(n int) (goroutines int, bytes uint64) {
		worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
			for round := range n {
				if err := split(rank, round, c); err != nil {
					return err
				}
			}
			return c.Barrier(t.Context())
		})
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapAlloc
	}
	goroutines, bytes := loop(warm)
	later, after := loop(rounds)
	for end := time.Now().Add(worldtest.Patience); later > goroutines && time.Now().Before(end); later = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond) // The last goroutines may still be ending.
	}
	if later > goroutines {
		t.Errorf("%d goroutines after %d rounds, and %d after %d more", goroutines, warm, later, rounds)
	}
	// The ids of closed communicators take a little memory.
	each := (float64(after) - float64(bytes)) / (2 * ranks * float64(rounds))
	t.Logf("each closed communicator keeps %.0f bytes", each)
	if each > 1000 {
		t.Errorf("each closed communicator keeps %.0f bytes, want at most 1000", each)
	}
}

// TestCloseDuringSplits: a node may be closed while communicators are created. Shared
// memory stays valid until its last user has stopped.
func TestCloseDuringSplits(t *testing.T) {
	worldtest.SHM().Require(t)
	const ranks = 3
	for range 10 {
		seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{World: ranks, AllowWeakToken: true, Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for rank := range ranks {
			all.Go(func() {
				n, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: []string{"shm"}})
				if err != nil {
					t.Error(err)
					return
				}
				var splits sync.WaitGroup
				splits.Go(func() {
					for err == nil {
						var c *nexar.Comm
						if c, err = n.World().Split(t.Context(), 0, rank); err == nil {
							err = errors.Join(sumsUp(t.Context(), c), c.Close())
						}
					}
				})
				time.Sleep(rand.N(20 * time.Millisecond))
				n.Close()
				splits.Wait()
				if peer, ok := errors.AsType[*nexar.PeerError](err); !errors.Is(err, nexar.ErrClosed) && !errors.Is(err, nexar.ErrRevoked) && (!ok || !peer.Left) {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		all.Wait()
		seed.Close()
	}
}

// TestDeathOfRank: a rank that dies ends all communicators that it belongs to, and the
// error has its rank in each of them. Other communicators go on.
func TestDeathOfRank(t *testing.T) {
	worldtest.InFakeTime(t, 4, func(t *testing.T, w *worldtest.World, network *sim.Network) {
		world := w.Comms
		const victim = 2
		worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
			reversed, err := c.Sub(t.Context(), []int{3, 2, 1, 0})
			if err != nil {
				return err
			}
			halves, err := c.Split(t.Context(), rank/2, 0)
			if err != nil {
				return err
			}
			if rank == victim {
				network.Crash(w.Host(rank))
				return nil
			}
			for _, test := range []struct {
				c    *nexar.Comm
				rank int // of the victim, or -1
			}{{reversed, 1}, {c, victim}, {halves, []int{-1, -1, 0, 0}[rank]}} {
				err := test.c.Barrier(t.Context())
				p, ok := errors.AsType[*nexar.PeerError](err)
				if ok != (test.rank >= 0) || ok && (p.Rank != test.rank || p.Left || p.Node != w.ID(victim)) || !ok && err != nil {
					return fmt.Errorf("%w, want that rank %d has failed", err, test.rank)
				}
			}
			return nil
		})
	})
}

// TestDeathInSplit: no rank waits for one that dies before a Split, and the error has its
// rank in the parent.
func TestDeathInSplit(t *testing.T) {
	for _, after := range []time.Duration{0, 1500 * time.Microsecond, 2500 * time.Microsecond, time.Second} {
		worldtest.InFakeTime(t, 3, func(t *testing.T, w *worldtest.World, network *sim.Network) {
			world := w.Comms
			worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
				if rank == 1 {
					time.AfterFunc(after, func() { network.Crash(w.Host(rank)) })
					if after == time.Second {
						time.Sleep(time.Minute)
					}
				}
				child, err := c.Sub(t.Context(), []int{1, 2, 0})
				if rank == 1 {
					return nil
				}
				if err == nil {
					err = child.Barrier(t.Context())
					if p, ok := errors.AsType[*nexar.PeerError](err); ok && p.Rank == 0 {
						return nil // of the new one
					}
				} else if p, ok := errors.AsType[*nexar.PeerError](err); ok && p.Rank == 1 {
					return nil
				}
				return fmt.Errorf("after %v: %w, want that the rank has failed", after, err)
			})
		})
	}
}

// TestDeathWhileSplitting: a rank dies while the others negotiate their new communicators, with and without it. The
// errors of all of them name it by its rank in the parent.
func TestDeathWhileSplitting(t *testing.T) {
	const ranks = 8
	for name, test := range map[string]struct {
		split func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error)
		group func(rank int) string // ranks of a new communicator
	}{
		"split": {
			func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.Split(ctx, c.Rank()%2, 0) },
			func(rank int) string { return fmt.Sprint(rank % 2) },
		},
		"split_host": {
			func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.SplitHost(ctx) },
			worldtest.HostOf,
		},
		"sub": {
			func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.Sub(ctx, []int{6, 4, 2, 0}) },
			func(rank int) string { return fmt.Sprint(rank % 2) },
		},
		"dup": {
			func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.Dup(ctx) },
			func(int) string { return "" },
		},
	} {
		for victim := range ranks {
			if worldtest.Brief() && victim%3 != 0 {
				continue
			}
			worldtest.InFakeTime(t, ranks, func(t *testing.T, w *worldtest.World, network *sim.Network) {
				// The requests of a group arrive at its first rank after a second. Meanwhile the others negotiate.
				first := make(map[string]int)
				for rank := range ranks {
					if to, has := first[test.group(rank)]; has {
						network.SetOneWay(w.Host(rank), w.Host(to), sim.Link{Delay: time.Second})
					} else {
						first[test.group(rank)] = rank
					}
				}
				worldtest.OnAll(t, w.Comms, func(rank int, c *nexar.Comm) error {
					if err := c.SetAlgorithms("all_gather=direct"); err != nil {
						return err
					}
					if rank == victim {
						time.AfterFunc(200*time.Millisecond, func() { network.Crash(w.Host(rank)) })
					}
					child, err := test.split(t.Context(), c)
					if err == nil { // It is not in the list of Sub, or alone on its host.
						_, err = nexar.Recv(t.Context(), c, make([]int64, 1), victim, 0)
					}
					for _, err := range []error{err, c.Err()} {
						p, ok := errors.AsType[*nexar.PeerError](err)
						if rank != victim && (!ok || p.Rank != victim || p.Node != w.ID(victim) || p.Left) {
							return fmt.Errorf("%s: %w, want the failure of rank %d", name, err, victim)
						}
					}
					if child != nil && child.Size() > 1 && rank != first[test.group(rank)] {
						return fmt.Errorf("%s: it succeeded while rank %d died", name, victim)
					}
					return nil
				})
			})
		}
	}
}

// TestCancelledSplit: if a rank cancels a Split at any moment, the Split or the new communicator
// ends on the other ranks, at once and with an error that names the rank.
func TestCancelledSplit(t *testing.T) {
	for after := 100 * time.Millisecond; after < 2*time.Second; after += 150 * time.Millisecond {
		worldtest.InFakeTime(t, 3, func(t *testing.T, w *worldtest.World, network *sim.Network) {
			world := w.Comms
			worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
				ctx := t.Context()
				parent, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				if err := errors.Join(parent.SetAlgorithms("all_gather=direct"), parent.Barrier(ctx)); err != nil {
					return err
				}
				// Messages to rank 1 are late, so that the others are ahead of it.
				// The wishes of the others come after a second, and their votes a second
				// later.
				if rank != 1 {
					network.SetOneWay(w.Host(rank), w.Host(1), sim.Link{Delay: time.Second})
				}
				began := time.Now()
				if rank == 1 {
					over, cancel := context.WithCancelCause(ctx)
					defer cancel(nil)
					time.AfterFunc(after, func() { cancel(worldtest.ErrCancelled) })
					ctx = over
				}
				child, err := parent.Dup(ctx)
				if rank == 1 {
					if !errors.Is(err, worldtest.ErrCancelled) || !errors.Is(err, context.Canceled) || child != nil {
						return fmt.Errorf("cancelled after %v: %w", after, err)
					}
					return nil
				}
				return endsAt(t, began.Add(after), parent, child, err)
			})
		})
	}
}

// TestCancelledSplitsOverLinks: after a cancelled Split, messages for its communicator do not
// break the link.
func TestCancelledSplitsOverLinks(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	// In the first second rank 1 waits for the wishes of the others, in the next for
	// their votes.
	for _, after := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} {
		worldtest.InFakeTime(t, 3, func(t *testing.T, w *worldtest.World, network *sim.Network) {
			world := w.Comms
			worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
				delay := func(d time.Duration) {
					if rank != 1 {
						network.SetOneWay(w.Host(rank), w.Host(1), sim.Link{Delay: d})
					}
				}
				rounds := 500
				if !worldtest.AllTrials() {
					rounds = 100
				}
				for round := range rounds {
					delay(time.Millisecond)
					parent, err := c.Dup(t.Context())
					if err != nil {
						return fmt.Errorf("round %d: %w", round, err)
					}
					if err := errors.Join(parent.SetAlgorithms("all_gather=direct"), parent.Barrier(t.Context())); err != nil {
						return err
					}
					delay(time.Second)
					ctx, cancel := context.WithCancelCause(t.Context())
					if rank == 1 {
						time.AfterFunc(after, func() { cancel(worldtest.ErrCancelled) })
					}
					if child, err := parent.Dup(ctx); err == nil {
						child.Close()
					}
					cancel(nil)
					parent.Close()
					time.Sleep(5 * time.Second) // until no message is in flight
				}
				return nil
			})
		})
	}
}

// endsAt checks that a communicator, or its creation, has ended because of rank 1, at a given time
// or when this rank uses it.
func endsAt(t *testing.T, at time.Time, parent, child *nexar.Comm, err error) error {
	if err != nil {
		if r, ok := errors.AsType[*nexar.RevokedError](err); !ok || r.Rank != 1 || !errors.Is(parent.Barrier(t.Context()), nexar.ErrRevoked) {
			return fmt.Errorf("a Split with a rank that gives up: %w", err)
		}
	} else {
		_, err := child.Call(t.Context(), 1, "f", nil)
		p, left := errors.AsType[*nexar.PeerError](err)
		r, revoked := errors.AsType[*nexar.RevokedError](err)
		if !left && !revoked || left && (p.Rank != 1 || !p.Left) || revoked && r.Rank != 1 {
			return fmt.Errorf("a call of a rank that has given up: %w", err)
		}
		err = child.Barrier(t.Context())
		if r, ok := errors.AsType[*nexar.RevokedError](err); !ok || r.Rank != 1 || !strings.Contains(err.Error(), worldtest.ErrCancelled.Error()) {
			return fmt.Errorf("a barrier with a rank that has given up: %w", err)
		}
	}
	if late := time.Since(at); late > 10*time.Millisecond {
		return fmt.Errorf("it has lasted %v after the other rank had given up", late)
	}
	return nil
}

// TestCancelledSplits: many calls of Split that are cancelled at random times leave
// nothing behind, in particular no part of the shared memory.
func TestCancelledSplits(t *testing.T) {
	const ranks = 3
	rounds := 200
	if !worldtest.AllTrials() {
		rounds = 40
	}
	world := worldtest.Mem().Cluster(t, ranks, nexar.Config{})
	rng := rand.New(rand.NewPCG(5, 6))
	for range rounds {
		after, giving := time.Duration(rng.IntN(300))*time.Microsecond, rng.IntN(ranks)
		worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
			parent, err := c.Dup(t.Context())
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
			defer cancel()
			if rank == giving {
				over, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				time.AfterFunc(after, func() { cancel(worldtest.ErrCancelled) })
				ctx = over
			}
			child, err := parent.Split(ctx, 0, rank)
			if err == nil {
				err = child.Close()
			} else if errors.Is(err, worldtest.ErrCancelled) || errors.Is(err, nexar.ErrRevoked) {
				err = nil
			}
			return errors.Join(err, parent.Close())
		})
	}
	worldtest.OnAll(t, world, func(_ int, c *nexar.Comm) error {
		var shared []bool
		for range shmexec.AreasMax {
			child, err := c.Dup(t.Context())
			if err != nil {
				return err
			}
			defer child.Close()
			on, err := inSharedMemory(child)
			if err != nil {
				return err
			}
			shared = append(shared, on)
		}
		if i := slices.Index(shared, false); i != shmexec.AreasMax-1 { // The world has a part, too.
			return fmt.Errorf("%d communicators have shared memory", i)
		}
		return nil
	})
}
