package cost

import (
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestDepths compares the depths in descriptors with the plans.
func TestDepths(t *testing.T) {
	for _, c := range plan.Collectives() {
		for _, a := range plan.Algorithms(c) {
			var want plan.Depths
			for i, n := range plan.DepthRanks {
				want[i] = uint8(depth(a, a.Plans(n, 0)))
			}
			if a.Depths != (plan.Depths{}) && a.Depths != want {
				t.Errorf("%v/%s: got Depths %v, want %v", c, a.Name, a.Depths, want)
			}
		}
	}
}

// TestDepthsMakeNoPlans: an algorithm with Depths needs no plans for its depth.
func TestDepthsMakeNoPlans(t *testing.T) {
	a := plan.Algorithms(plan.AllReduce)[0]
	want := depthBeyond(a, 1000, 4)
	a.Plan = func(rank, size, _ int) plan.Plan {
		t.Errorf("made the plan of rank %d of %d", rank, size)
		return plan.Plan{}
	}
	if got := depthBeyond(a, 1000, 4); got != want {
		t.Errorf("depth of 1000 ranks: got %d, want %d", got, want)
	}
}
