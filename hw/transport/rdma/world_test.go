//go:build linux

package rdma

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/transport"
)

// inWorld calls f on each rank of a joined world, and closes the nodes after a barrier. reach is the transports between the nodes. The
// test fails if a queue pair fails.
func inWorld(t *testing.T, world int, reach []string, counters *Counters, f func(ctx context.Context, node *nexar.Node) error) {
	t.Helper()
	inWorldWith(t, world, reach, counting(counters), f)
	wantNoFailure(t, counters)
}

// counting returns a function that makes factories with counters.
func counting(c *Counters) func() transport.Factory {
	return func() transport.Factory { return Factory(Config{Listen: "127.0.0.1:0", Stall: patience, Counters: c}) }
}

// inWorldWith is inWorld with factories, and without a check of the counters.
func inWorldWith(t *testing.T, world int, reach []string, factory func() transport.Factory, f func(ctx context.Context, node *nexar.Node) error) {
	t.Helper()
	needDevice(t)
	wantNoObjects(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: world, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	var ranks sync.WaitGroup
	for range world {
		ranks.Go(func() {
			// The processor is emulated, so silence means nothing for a while.
			node, err := nexar.Join(ctx, nexar.Config{
				Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: reach,
				Factories:         []transport.Factory{factory()},
				HeartbeatInterval: 10 * time.Second, HeartbeatTimeout: time.Minute,
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer node.Close()
			if err := f(ctx, node); err != nil {
				t.Errorf("rank %d: %v", node.World().Rank(), err)
			}
			if err := node.World().Barrier(ctx); err != nil {
				t.Errorf("rank %d: barrier: %v", node.World().Rank(), err)
			}
		})
	}
	ranks.Wait()
}

// wantRDMA returns an error unless RDMA links a node to all others.
func wantRDMA(node *nexar.Node) error {
	for _, p := range node.Peers() {
		if p.Transport != Name || p.BulkTransport != Name {
			return fmt.Errorf("linked to rank %d over %s and %s, want %s", p.Rank, p.Transport, p.BulkTransport, Name)
		}
	}
	return nil
}

var reach = []string{"quic", "tcp", Name}

// TestWorld: a joined world reduces vectors over RDMA, short ones and long ones, in memory of the heap and in registered
// memory.
func TestWorld(t *testing.T) {
	inWorld(t, 2, reach, new(Counters), func(ctx context.Context, node *nexar.Node) error {
		if err := reduceAll(ctx, node); err != nil {
			return err
		}
		return wantRDMA(node)
	})
}

// TestAllReduceCopiesNoPayload: all-reduces in registered memory copy frames alone. The payloads that are not reduced are written into
// the vectors, also those that need no grant over other transports.
func TestAllReduceCopiesNoPayload(t *testing.T) {
	checkCopies(t, 8<<20)
	checkCopies(t, 256<<10, "all_reduce=direct/1")
}

// checkCopies measures an all-reduce on two ranks, each of which sends a half reduced.
func checkCopies(t *testing.T, bytes int, algorithms ...string) {
	t.Helper()
	var counters Counters
	var before, after [3]uint64
	read := func() [3]uint64 { return [3]uint64{counters.Copied(), counters.Written(), counters.Waits()} }
	inWorld(t, 2, reach, &counters, func(ctx context.Context, node *nexar.Node) error {
		v, free, err := nexar.AllocRegistered[float64](bytes / 8)
		if err != nil {
			return err
		}
		defer free()
		w := node.World()
		if err := w.SetAlgorithms(algorithms...); err != nil {
			return err
		}
		reduce := func(x float64) error {
			for i := range v {
				v[i] = x * float64(w.Rank()+1)
			}
			if err := nexar.AllReduce(ctx, w, v, nexar.Sum); err != nil {
				return err
			}
			for i := range v {
				if v[i] != 3*x {
					return fmt.Errorf("element %d: sum %v, want %v", i, v[i], 3*x)
				}
			}
			return w.Barrier(ctx)
		}
		if err := reduce(1); err != nil {
			return err
		}
		if w.Rank() == 0 {
			before = read()
		}
		if err := w.Barrier(ctx); err != nil {
			return err
		}
		if err := reduce(2); err != nil {
			return err
		}
		if w.Rank() == 0 {
			after = read()
		}
		return w.Barrier(ctx)
	})
	copied, written := after[0]-before[0], after[1]-before[1]
	t.Logf("all-reduce of %d bytes, both ranks: %d bytes copied, %d bytes written remotely, %d waits for events", bytes, copied, written, after[2]-before[2])
	if copied > 32<<10 {
		t.Errorf("an all-reduce of %d bytes copies %d bytes, want frames alone", bytes, copied)
	}
	if written != uint64(bytes) {
		t.Errorf("an all-reduce of %d bytes on two ranks writes %d bytes remotely, want the half that each rank sends reduced: %d", bytes, written, bytes)
	}
}

// reduceAll adds vectors of several lengths, and checks the sums.
func reduceAll(ctx context.Context, node *nexar.Node) error {
	for _, n := range []int{1, 1000, 100_000, 1 << 20} {
		v, free, err := nexar.AllocRegistered[float64](n)
		if err != nil {
			return err
		}
		defer free()
		for _, v := range [][]float64{make([]float64, n), v} {
			for i := range v {
				v[i] = float64(i * (node.World().Rank() + 1))
			}
			if err := nexar.AllReduce(ctx, node.World(), v, nexar.Sum); err != nil {
				return err
			}
			for i := range v {
				if v[i] != float64(3*i) {
					return fmt.Errorf("element %d of %d: sum %v, want %v", i, n, v[i], float64(3*i))
				}
			}
		}
	}
	return nil
}
