package cost

import (
	"math/bits"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestBruckForShortBlocks: an all-to-all of short blocks takes the algorithm with few messages, over links and
// on sparse topologies, and one of long blocks the algorithm that sends each block once. Blocks of different
// lengths can only be sent one by one.
func TestBruckForShortBlocks(t *testing.T) {
	const size = 32
	hypercube := func(from, to int) int { return bits.OnesCount(uint(from ^ to)) }
	// Neighbors are the ranks at a distance of at most 2 in a ring.
	ring := inRing(size, true)
	regular := func(from, to int) int { return (ring(from, to) + 1) / 2 }
	tuners := map[string]*Tuner{
		"tcp": New(TCP(false)), "tls": New(TCP(true)), "quic": New(QUIC()),
		"hypercube": New(TCP(true)).Over(hypercube),
		"k-regular": New(TCP(true)).Over(regular),
	}
	for name, tuner := range tuners {
		for _, test := range []struct {
			block  int
			uneven bool
			want   string
		}{
			{8, false, "bruck"}, {256, false, "bruck"}, {8, true, "pairwise"}, {1 << 20, false, "pairwise"},
		} {
			need := Need{Collective: plan.AllToAll, Size: size, Bytes: test.block * size, Blocks: true, Uneven: test.uneven}
			if got := tuner.Choose(need).Algorithm.Name; got != test.want {
				t.Errorf("%s: blocks of %d bytes, uneven %v: %s, want %s", name, test.block, test.uneven, got, test.want)
			}
		}
	}
}
