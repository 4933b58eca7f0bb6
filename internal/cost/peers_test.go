package cost

import (
	"math/bits"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestPeersOfPlans: the algorithms that are chosen by default, except those in which each rank exchanges blocks with all
// others, link a rank to at most 3·⌈log₂ n⌉+2 others together. "nexar doctor" and "nexar run" assume this for links on demand.
func TestPeersOfPlans(t *testing.T) {
	for _, n := range []int{64, 100, 128, 256, 1000} {
		tuner, limit := New(TCP(true)), 3*bits.Len(uint(n-1))+2
		for _, rank := range []int{0, 1, n / 2, n - 1} {
			peers := make(map[int]bool)
			for _, need := range needs(n) {
				if need.Bytes > 4<<20 {
					continue
				}
				a := plan.Algorithms(need.Collective)[tuner.Choose(need).Index]
				if a.Name == "direct" || a.Name == "pairwise" {
					continue
				}
				for peer := range a.Plan(rank, n, 0).Peers {
					peers[peer] = true
				}
			}
			if len(peers) > limit || len(peers) < limit/3 {
				t.Errorf("rank %d of %d has %d peers, want at most %d, and at least a third of that", rank, n, len(peers), limit)
			}
		}
	}
}
