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

// TestWorld: a joined world reduces vectors over RDMA, short ones and long ones, in memory of the heap and in registered
// memory.
func TestWorld(t *testing.T) {
	needDevice(t)
	const world = 2
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: world})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	var ranks sync.WaitGroup
	for range world {
		ranks.Go(func() {
			// The processor is emulated, so silence means nothing for a while.
			node, err := nexar.Join(ctx, nexar.Config{
				Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: []string{"quic", "tcp", Name},
				Factories:         []transport.Factory{Factory(Config{Listen: "127.0.0.1:0"})},
				HeartbeatInterval: 10 * time.Second, HeartbeatTimeout: time.Minute,
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer node.Close()
			if err := reduceAll(ctx, node); err != nil {
				t.Error(err)
			}
			for _, p := range node.Peers() {
				if p.Transport != Name || p.BulkTransport != Name {
					t.Errorf("rank %d is linked to rank %d over %s and %s, want %s", node.World().Rank(), p.Rank, p.Transport, p.BulkTransport, Name)
				}
			}
			if err := node.World().Barrier(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	ranks.Wait()
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
