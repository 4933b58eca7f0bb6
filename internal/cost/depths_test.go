package cost

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestFewDepths compares the table of depths with the plans. It prints the lines of algorithms that are wrong or missing. A missing
// line is not an error.
func TestFewDepths(t *testing.T) {
	for c := plan.Barrier; c < plan.CollectiveLimit; c++ {
		known := slices.Clone(fewDepths[c])
		for _, a := range plan.Algorithms(c) {
			d := namedDepths{name: a.Name}
			for i, n := range fewRanks {
				d.depths[i] = uint8(depth(a, a.Plans(n, 0)))
			}
			line := fmt.Sprintf("{%q, %#v},", d.name, d.depths)
			switch i := slices.IndexFunc(known, func(d namedDepths) bool { return d.name == a.Name }); {
			case i < 0:
				t.Logf("%v lacks %s", c, line)
			case known[i] != d:
				t.Errorf("%v: got %v, want %s", c, known[i], line)
			default:
				known = slices.Delete(known, i, i+1)
			}
		}
		if len(known) > 0 {
			t.Errorf("%v has no algorithms for %v", c, known)
		}
	}
}

// TestFewDepthsMakesNoPlans: an algorithm in the table needs no plans for its depth.
func TestFewDepthsMakesNoPlans(t *testing.T) {
	a := plan.Algorithms(plan.AllReduce)[0]
	want := depthBeyond(plan.AllReduce, a, 1000, 4)
	a.Plan = func(rank, size, _ int) plan.Plan {
		t.Errorf("made the plan of rank %d of %d", rank, size)
		return plan.Plan{}
	}
	if got := depthBeyond(plan.AllReduce, a, 1000, 4); got != want {
		t.Errorf("depth of 1000 ranks: got %d, want %d", got, want)
	}
}
