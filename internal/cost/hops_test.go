package cost

import (
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// inRing returns the hops in a ring of ranks. Without relays only neighbors reach each other.
func inRing(size int, relays bool) Hops {
	return func(from, to int) int {
		h := (to - from + size) % size
		if h = min(h, size-h); h > 1 && !relays {
			return Unreachable
		}
		return h
	}
}

// TestNeighborsOnly: without relays, the algorithm with messages to neighbors alone is chosen, for every length, and
// among many ranks as well.
func TestNeighborsOnly(t *testing.T) {
	for _, size := range []int{5, 8, 33, 100} {
		tuner := New(TCP(true)).Over(inRing(size, false))
		for c, want := range map[plan.Collective]string{plan.AllReduce: "ring", plan.AllGather: "ring", plan.ReduceScatter: "ring", plan.Broadcast: "chain", plan.Reduction: "chain"} {
			for _, bytes := range []int{0, 8, 1 << 10, 1 << 20, 64 << 20} {
				if got := tuner.Choose(Need{Collective: c, Size: size, Bytes: bytes}); got.Algorithm.Name != want {
					t.Errorf("%v of %d bytes on %d ranks: %s, want %s", c, bytes, size, got.Algorithm.Name, want)
				}
			}
		}
	}
}

// TestHopsCost: messages over relays cost more than those between neighbors, and no more than their hops say.
func TestHopsCost(t *testing.T) {
	const size = 16
	direct, relayed := New(TCP(true)), New(TCP(true)).Over(inRing(size, true))
	for i, a := range plan.Algorithms(plan.AllReduce) {
		need := Need{Collective: plan.AllReduce, Size: size, Bytes: 1 << 20}
		before, ok := direct.ChoiceWith(need, i, 1)
		after, still := relayed.ChoiceWith(need, i, 1)
		if ok != still || a.Shared {
			continue
		}
		if ratio := after.Seconds / before.Seconds; ratio < 1 || ratio > size/2 || (a.Name == "ring") != (ratio == 1) {
			t.Errorf("%s: %.3g s over relays, %.3g s without", a.Name, after.Seconds, before.Seconds)
		}
	}
	if got := relayed.Choose(Need{Collective: plan.AllReduce, Size: size, Bytes: 1 << 10}).Algorithm.Name; got == "recursive-doubling" {
		t.Errorf("%s is chosen for a short vector in a ring, and its messages go halfway round", got)
	}
}
