package conformance

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestLongVectorsOfEveryRoot: every root works, since trees have other messages with
// each, and long vectors are divided into pieces.
func TestLongVectorsOfEveryRoot(t *testing.T) {
	require.NoRace(t, "it copies gigabytes")
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks()) {
		for _, n := range []int{3, 5, 6} {
			comms := m.Cluster(t, n, nexar.Config{})
			for root := range n {
				worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error { return rootedTrial(t, c, root, 20_011) })
			}
		}
	}
}

// In rootedTrial, root scatters a vector, each rank doubles its block, and root gathers,
// reduces and broadcasts the result.
func rootedTrial(t *testing.T, c *nexar.Comm, root, count int) error {
	var all, back []int64
	if c.Rank() == root {
		all, back = make([]int64, c.Size()*count), make([]int64, c.Size()*count)
		for i := range all {
			all[i] = int64(i + root)
		}
	}
	own := make([]int64, count)
	if err := nexar.Scatter(t.Context(), c, own, all, root); err != nil {
		return err
	}
	for i, got := range own {
		if want := int64(c.Rank()*count + i + root); got != want {
			return fmt.Errorf("scatter from %d: element %d is %d, want %d", root, i, got, want)
		}
		own[i] *= 2
	}
	if err := nexar.Gather(t.Context(), c, back, own, root); err != nil {
		return err
	}
	for i, got := range back {
		if got != 2*all[i] {
			return fmt.Errorf("gather to %d: element %d is %d, want %d", root, i, got, 2*all[i])
		}
	}
	if err := nexar.Reduce(t.Context(), c, own, nexar.Sum, root); err != nil {
		return err
	}
	if err := nexar.Broadcast(t.Context(), c, own, root); err != nil {
		return err
	}
	n := c.Size()
	for i, got := range own {
		if want := 2 * int64(n*(i+root)+count*n*(n-1)/2); got != want {
			return fmt.Errorf("reduce to %d: element %d is %d, want %d", root, i, got, want)
		}
	}
	return nil
}
