package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestSparseNeighbors: in worlds where only neighbors reach each other, collectives that have an algorithm for that use
// it, for all lengths and roots: nothing is sent to any other rank. The longest vectors have only some of the roots, unless all
// trials are made.
func TestSparseNeighbors(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, test := range []struct {
		topology string
		size     int
		calls    func(ctx context.Context, c *nexar.Comm, n int) error
	}{
		{"k-regular:2", 7, sparseCalls}, {"k-regular:4", 7, sparseCalls}, {"k-regular:3", 7, sparseCalls},
		{"hypercube", 7, sparseSum}, {"hypercube", 8, sparseSum}, // Other collectives have no algorithm for hypercubes.
	} {
		for _, m := range worldtest.Media(worldtest.MemLinks(), worldtest.MemHosts(), worldtest.Sim(), worldtest.TLS()) {
			t.Run(fmt.Sprintf("%s of %d/%s", test.topology, test.size, m.Name), func(t *testing.T) {
				comms := m.Sparse(t, test.topology).Cluster(t, test.size, nexar.Config{})
				for _, n := range []int{1, 100, 10_000, 100_000} {
					var begun atomic.Int64
					if err := worldtest.ForEach(test.size, func(rank int) error {
						begun.Add(1)
						if err := comms[rank].Barrier(t.Context()); err != nil {
							return err
						}
						if k := begun.Load(); k != int64(test.size) {
							return fmt.Errorf("the barrier has ended when %d of %d ranks had begun it", k, test.size)
						}
						return test.calls(t.Context(), comms[rank], n)
					}); err != nil {
						t.Fatalf("%d elements: %v", n, err)
					}
				}
			})
		}
	}
}

// sparseSum makes an all-reduce and checks the result.
func sparseSum(ctx context.Context, c *nexar.Comm, n int) error {
	all := slices.Repeat([]int64{int64(c.Rank())}, n)
	return cmpErr(nexar.AllReduce(ctx, c, all, nexar.Sum), func() error {
		sum := int64(c.Size() * (c.Size() - 1) / 2)
		return sparseCheck("all-reduce", all, func(int) int64 { return sum })
	})
}

func sparseCheck(what string, got []int64, want func(i int) int64) error {
	for i := range got {
		if got[i] != want(i) {
			return fmt.Errorf("%s: element %d is %d, want %d", what, i, got[i], want(i))
		}
	}
	return nil
}

// sparseCalls makes the collectives of a rank, and messages to the next rank, and checks the results.
func sparseCalls(ctx context.Context, c *nexar.Comm, n int) error {
	rank, size := c.Rank(), c.Size()
	own, sum := slices.Repeat([]int64{int64(rank)}, n), int64(size*(size-1)/2)
	if err := sparseSum(ctx, c, n); err != nil {
		return err
	}
	gathered := make([]int64, n*size)
	if err := cmpErr(nexar.AllGather(ctx, c, gathered, own), func() error {
		return sparseCheck("all-gather", gathered, func(i int) int64 { return int64(i / n) })
	}); err != nil {
		return err
	}
	part := make([]int64, n)
	if err := cmpErr(nexar.ReduceScatter(ctx, c, part, gathered, nexar.Sum), func() error {
		return sparseCheck("reduce-scatter", part, func(int) int64 { return int64(rank * size) })
	}); err != nil {
		return err
	}
	for root := range size {
		if n > 10_000 && root%3 != 0 && !worldtest.AllTrials() {
			continue
		}
		data := slices.Clone(own)
		if err := cmpErr(nexar.Broadcast(ctx, c, data, root), func() error {
			return sparseCheck("broadcast", data, func(int) int64 { return int64(root) })
		}); err != nil {
			return err
		}
		copy(data, own)
		if err := cmpErr(nexar.Reduce(ctx, c, data, nexar.Sum, root), func() error {
			if rank != root {
				return nil
			}
			return sparseCheck("reduce", data, func(int) int64 { return sum })
		}); err != nil {
			return err
		}
	}
	next, before := (rank+1)%size, (rank+size-1)%size
	received := make([]int64, n)
	h := nexar.StartRecv(ctx, c, received, before, 0)
	if err := nexar.Send(ctx, c, own, next, 0); err != nil {
		return err
	}
	return cmpErr(h.Wait(), func() error { return sparseCheck("message", received, func(int) int64 { return int64(before) }) })
}

// cmpErr returns err, or the result of check.
func cmpErr(err error, check func() error) error {
	if err != nil {
		return err
	}
	return check()
}

// TestSparseWithoutWay: a message to a rank that is not a neighbor, without a relay, ends with an error that names the rank
// and the topology.
func TestSparseWithoutWay(t *testing.T) {
	comms := worldtest.MemLinks().Sparse(t, "k-regular:2").Cluster(t, 6, nexar.Config{})
	_, err := nexar.Recv(t.Context(), comms[0], make([]byte, 1), 3, 0)
	if e, ok := errors.AsType[*nexar.PeerError](err); !ok || e.Rank != 3 || !strings.Contains(err.Error(), "not a neighbor of this node in the topology k-regular:2") {
		t.Errorf("got error %v, want a PeerError of rank 3 that names the topology", err)
	}
}

// TestSparseLate: ranks that wait for a late one for longer than any pause between queries do not query ranks that they cannot
// reach, since that would end the collective.
func TestSparseLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, late = 7, 3
		comms := worldtest.MemLinks().Sparse(t, "k-regular:2").Cluster(t, size, nexar.Config{})
		if err := worldtest.ForEach(size, func(rank int) error {
			if rank == late {
				time.Sleep(10 * time.Second)
			}
			return sparseCalls(t.Context(), comms[rank], 10)
		}); err != nil {
			t.Error(err)
		}
	})
}
