package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/test/worldtest"
)

// isOf checks that a communicator has these ranks of the world, in this order.
func isOf(world, c *nexar.Comm, ranks ...int) error {
	var got []int
	for r := range c.Size() {
		got = append(got, c.WorldRank(r))
	}
	if !slices.Equal(got, ranks) || ranks[c.Rank()] != world.Rank() || c.Epoch() != world.Epoch() {
		return fmt.Errorf("rank %d of %v in epoch %d, want %v in epoch %d", c.Rank(), got, c.Epoch(), ranks, world.Epoch())
	}
	return nil
}

// sumsUp checks an all-reduce of the ranks of a communicator.
func sumsUp(ctx context.Context, c *nexar.Comm) error {
	x, want := []int64{int64(c.WorldRank(c.Rank())) + 100}, int64(0)
	for r := range c.Size() {
		want += int64(c.WorldRank(r)) + 100
	}
	if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil || x[0] != want {
		return fmt.Errorf("sum = %d, want %d: %w", x[0], want, err)
	}
	return nil
}

// TestSplit: colors determine the communicators and keys the order of their ranks; ties
// keep the order of the parent.
func TestSplit(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			world := m.Cluster(t, 5, nexar.Config{})
			for _, test := range []struct {
				colors, keys [5]int
				want         [5][]int // the communicator of each rank
			}{
				{[5]int{}, [5]int{}, [5][]int{{0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3, 4}}},
				{[5]int{}, [5]int{9, 7, 7, -5, 9}, [5][]int{{3, 1, 2, 0, 4}, {3, 1, 2, 0, 4}, {3, 1, 2, 0, 4}, {3, 1, 2, 0, 4}, {3, 1, 2, 0, 4}}},
				{[5]int{1, 0, 1, 0, 1}, [5]int{3, 2, 2, 1, 1}, [5][]int{{4, 2, 0}, {3, 1}, {4, 2, 0}, {3, 1}, {4, 2, 0}}},
				{[5]int{-1, 1 << 40, -9, 1 << 40, 0}, [5]int{}, [5][]int{nil, {1, 3}, nil, {1, 3}, {4}}},
				{[5]int{-1, -1, -1, -1, -1}, [5]int{}, [5][]int{}},
			} {
				worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
					child, err := c.Split(t.Context(), test.colors[rank], test.keys[rank])
					if err != nil || test.want[rank] == nil {
						if child != nil {
							return errors.New("a communicator for a rank without color")
						}
						return err
					}
					defer child.Close()
					return errors.Join(isOf(c, child, test.want[rank]...), sumsUp(t.Context(), child))
				})
			}
		})
	}
}

// TestSplitOfSplit: Dup and Sub work, on communicators of a Split too.
func TestSplitOfSplit(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			world := m.Cluster(t, 5, nexar.Config{})
			worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
				ctx := t.Context()
				sub, err := c.Sub(ctx, []int{4, 1, 3, 0})
				if err != nil || rank == 2 {
					if sub != nil {
						return errors.New("a communicator for a rank that is not in the list")
					}
					return err
				}
				defer sub.Close()
				dup, err := sub.Dup(ctx)
				if err != nil {
					return err
				}
				defer dup.Close()
				half, err := dup.Split(ctx, dup.Rank()/2, -dup.Rank())
				if err != nil {
					return err
				}
				defer half.Close()
				want := []int{1, 4}
				if rank == 0 || rank == 3 {
					want = []int{0, 3}
				}
				single, err := half.Sub(ctx, []int{1})
				if err != nil || (single != nil) != (half.Rank() == 1) {
					return fmt.Errorf("the last rank alone: %v, %w", single, err)
				}
				if single != nil {
					defer single.Close()
					err = errors.Join(isOf(c, single, rank), sumsUp(ctx, single))
				}
				return errors.Join(err, isOf(c, sub, 4, 1, 3, 0), isOf(c, dup, 4, 1, 3, 0), isOf(c, half, want...),
					sumsUp(ctx, sub), sumsUp(ctx, dup), sumsUp(ctx, half))
			})
		})
	}
}

// TestSubOfInvalidRanks: a list with an unknown rank, or with a rank twice, is an error
// on this rank alone.
func TestSubOfInvalidRanks(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	for _, list := range [][]int{{3}, {-1}, {0, 1, 0}, {0, 1, 2, 2}} {
		for _, c := range comms {
			if child, err := c.Sub(t.Context(), list); !errors.Is(err, nexar.ErrInvalidRank) || child != nil || !strings.HasPrefix(err.Error(), "nexar: sub: ") {
				t.Errorf("%v: %v, want %v", list, err, nexar.ErrInvalidRank)
			}
		}
	}
	worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error {
		child, err := c.Sub(t.Context(), nil)
		if child != nil || err != nil {
			return fmt.Errorf("of no ranks: %v, %w", child, err)
		}
		return nil
	})
	worldtest.CheckWorks(t, comms)
}

// TestSplitMismatch: ranks that call Sub with different lists all get the same error, which has both calls, and no communicator. The
// communicator still works. A Dup differs from a Split, and from a barrier.
func TestSplitMismatch(t *testing.T) {
	for name, odd := range map[string]func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error){
		"sub #2 (ranks [0 1])": func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.Sub(ctx, []int{0, 1}) },
		"sub #2 (ranks [2 1])": func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.Sub(ctx, []int{2, 1}) },
		"sub #2 (ranks [])":    func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.Sub(ctx, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			for turn := range 3 {
				comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
				calls := slices.Repeat([]string{"sub #2 (ranks [1 2])"}, 3)
				calls[turn] = name
				text := fmt.Sprintf("rank 0 called %s, rank %d called %s", calls[0], max(turn, 1), calls[max(turn, 1)])
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if err := c.Barrier(t.Context()); err != nil {
						return err
					}
					ask := odd
					if rank != turn {
						ask = func(ctx context.Context, c *nexar.Comm) (*nexar.Comm, error) { return c.Sub(ctx, []int{1, 2}) }
					}
					child, err := ask(t.Context(), c)
					if _, ok := errors.AsType[*nexar.MismatchError](err); child != nil || !ok || !strings.HasSuffix(err.Error(), ": calls do not match: "+text) || strings.Count(err.Error(), "nexar: ") > 1 {
						return fmt.Errorf("got %w, want %s", err, text)
					}
					return nil
				})
				worldtest.CheckWorks(t, comms)
			}
		})
	}
	for op, call := range map[string]func(c *nexar.Comm) error{
		"barrier": func(c *nexar.Comm) error { return c.Barrier(t.Context()) },
		"split":   func(c *nexar.Comm) error { _, err := c.Split(t.Context(), 0, c.Rank()); return err },
	} {
		worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) (err error) {
			if rank == 0 {
				_, err = c.Dup(t.Context())
			} else {
				err = call(c)
			}
			m, ok := errors.AsType[*nexar.MismatchError](err)
			if !ok {
				return fmt.Errorf("a dup and a %s: %w, want a mismatch", op, err)
			}
			if ops := []string{m.Call.Op, m.PeerCall.Op}; !slices.Contains(ops, "dup") || !slices.Contains(ops, op) {
				return fmt.Errorf("%w, want a mismatch of dup and %s", err, op)
			}
			return nil
		})
	}
}

// TestCloseOfOneComm: neither Close of a communicator nor a failure in it affects others.
func TestCloseOfOneComm(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			world := m.Cluster(t, 3, nexar.Config{})
			worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
				ctx := t.Context()
				var list [4]*nexar.Comm // each the parent of the next one
				for i := range list {
					parent := c
					if i > 0 {
						parent = list[i-1]
					}
					var err error
					if list[i], err = parent.Dup(ctx); err != nil {
						return err
					}
				}
				if err := list[0].Close(); err != nil { // a parent
					return err
				}
				if err := sumsUp(ctx, list[1]); err != nil {
					return err
				}
				if err := list[3].Close(); err != nil { // a child
					return err
				}
				if err := sumsUp(ctx, list[2]); err != nil {
					return err
				}
				over, cancel := context.WithCancelCause(ctx)
				cancel(worldtest.ErrCancelled)
				if rank == 1 {
					ctx = over
				}
				if err := list[1].Barrier(ctx); err == nil {
					return errors.New("a barrier that is cancelled has gone well")
				}
				if err := list[1].Err(); !errors.Is(err, nexar.ErrRevoked) {
					return fmt.Errorf("where a call has failed: %w, want %w", err, nexar.ErrRevoked)
				}
				ctx = t.Context()
				err := errors.Join(sumsUp(ctx, list[2]), sumsUp(ctx, c), list[1].Close(), list[2].Close())
				for i, closed := range list {
					if err := closed.Barrier(ctx); i != 1 && !errors.Is(err, nexar.ErrClosed) {
						return fmt.Errorf("communicator %d is closed: %w", i, err)
					}
				}
				return err
			})
			worldtest.CheckWorks(t, world)
		})
	}
}

// TestCloseOfNode: all communicators end with their node.
func TestCloseOfNode(t *testing.T) {
	world, err := nexar.Local(t.Context(), 2, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	worldtest.OnAll(t, world, func(rank int, c *nexar.Comm) error {
		child, err := c.Dup(t.Context())
		if err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		if err := child.Barrier(t.Context()); !errors.Is(err, nexar.ErrClosed) {
			return fmt.Errorf("%w, want %w", err, nexar.ErrClosed)
		}
		return child.Close()
	})
}

// inSharedMemory reports whether collectives of a communicator run in shared memory.
func inSharedMemory(c *nexar.Comm) (bool, error) {
	ways, err := c.Algorithms("all_reduce", 8)
	return err == nil && ways[0].Shared, err
}

// TestMoreCommsThanParts: communicators use shared memory while parts of it are free, and
// links otherwise, and all of them work at the same time. The parts of closed
// communicators are used again.
func TestMoreCommsThanParts(t *testing.T) {
	const all, most = shmexec.AreasMax + 8, shmexec.AreasMax - 1 // The world has a part, too.
	world := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	for range 2 {
		worldtest.OnAll(t, world, func(_ int, c *nexar.Comm) error {
			var list []*nexar.Comm
			for i := range all {
				child, err := c.Dup(t.Context())
				if err != nil {
					return err
				}
				list = append(list, child)
				if shared, err := inSharedMemory(child); err != nil || shared != (i < most) {
					return fmt.Errorf("communicator %d has shared memory: %v, %w", i, shared, err)
				}
			}
			return worldtest.ForEach(all, func(i int) error {
				return errors.Join(sumsUp(t.Context(), list[i]), list[i].Barrier(t.Context()), list[i].Close())
			})
		})
	}
}

// TestSplitOverHosts: communicators choose by the hosts of their own ranks: shared memory
// on a single host, hierarchical plans for several hosts with several ranks each, and
// flat plans otherwise.
func TestSplitOverHosts(t *testing.T) {
	worldtest.Mixed().Require(t)
	world := worldtest.Mixed().Cluster(t, 6, nexar.Config{}) // Ranks 0, 2 and 5 are on one host, 1, 3 and 4 on another.
	for _, test := range []struct {
		ranks                []int
		shared, hierarchical bool
	}{
		{[]int{0, 2, 5}, true, false},
		{[]int{4, 1}, true, false},
		{[]int{3, 0, 1, 2}, false, true},
		{[]int{5, 4, 3, 2, 1, 0}, false, true},
		{[]int{0, 1}, false, false},
	} {
		worldtest.OnAll(t, world, func(_ int, c *nexar.Comm) error {
			child, err := c.Sub(t.Context(), test.ranks)
			if err != nil || child == nil {
				return err
			}
			defer child.Close()
			choice, hierarchical, err := hostsAreUsed(child, 1<<20)
			if err != nil || choice.Shared != test.shared || hierarchical != test.hierarchical {
				return fmt.Errorf("%v: %+v, error %w", test.ranks, choice, err)
			}
			return sumsUp(t.Context(), child)
		})
	}
}

// TestSplitIsNoAllGather: the exchange within a Split matches no other call, and errors
// call it a split.
func TestSplitIsNoAllGather(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	errs := make([]error, 2)
	worldtest.ForEach(2, func(rank int) error {
		if rank == 0 {
			_, errs[rank] = comms[rank].Split(t.Context(), 0, 0)
		} else {
			errs[rank] = nexar.AllGather(t.Context(), comms[rank], make([][5]int64, 2), make([][5]int64, 1))
		}
		return nil
	})
	for rank, err := range errs {
		if m, ok := errors.AsType[*nexar.MismatchError](err); !ok || !strings.Contains(m.Error(), "split #1") {
			t.Errorf("rank %d: %v, want a mismatch with a split", rank, err)
		}
	}
}
