package tune

import (
	"math"
	"testing"

	"github.com/nexar-go/nexar/internal/board"
	"github.com/nexar-go/nexar/internal/plan"
)

// TestSharedChoices: of all collectives there is one for every length and any
// number of ranks, and what has to be cut can be.
func TestSharedChoices(t *testing.T) {
	const pieceBytes = 256 << 10
	for _, size := range []int{2, 3, 4, 8, 17} {
		tuner := NewShared(Host(pieceBytes, false, 0))
		for _, c := range plan.Collectives() {
			for bytes := 8; bytes <= 64<<20 && (bytes == 8 || c != plan.Barrier); bytes *= 4 {
				for _, ordered := range []bool{false, c.Reduces()} {
					got := tuner.Choose(Need{Collective: c, Size: size, Bytes: bytes, Ordered: ordered})
					if !got.Shared || got.Seconds <= 0 || ordered && !got.Algorithm.Ordered {
						t.Errorf("%v, %d ranks, %d bytes: %+v", c, size, bytes, got)
					}
					single := board.Compile(got.Algorithm.Plans(size, 0), 0).Single
					if bytes > pieceBytes && !single {
						t.Errorf("%v, %d ranks, %d bytes: %s cannot be cut", c, size, bytes, got.Algorithm.Name)
					}
				}
			}
		}
	}
}

// TestSharedTakesFewSteps: short vectors are exchanged in one step, long ones
// are reduced by all ranks at the same time.
func TestSharedTakesFewSteps(t *testing.T) {
	tuner := NewShared(Host(256<<10, false, 0))
	for _, test := range []struct {
		collective  plan.Collective
		short, long string
	}{
		{plan.AllReduce, "flat", "staged"},
		{plan.Barrier, "flat", "flat"},
		{plan.Broadcast, "flat", "flat"},
		{plan.AllGather, "direct", "direct"},
		{plan.AllToAll, "pairwise", "pairwise"},
		{plan.ReduceScatter, "staged", "staged"},
	} {
		short := tuner.Choose(Need{Collective: test.collective, Size: 4, Bytes: 8})
		long := tuner.Choose(Need{Collective: test.collective, Size: 4, Bytes: 64 << 20})
		if short.Algorithm.Name != test.short || long.Algorithm.Name != test.long {
			t.Errorf("%v: %s for 8 B and %s for 64 MiB, want %s and %s", test.collective,
				short.Algorithm.Name, long.Algorithm.Name, test.short, test.long)
		}
	}
}

// TestSharedTreesOfEveryRoot: with three ranks the messages of a tree are single
// chunks if rank 0 is its root, and not if rank 2 is.
func TestSharedTreesOfEveryRoot(t *testing.T) {
	tuner := NewShared(Host(64<<10, false, 0))
	for _, c := range plan.Collectives() {
		if !c.Rooted() {
			continue
		}
		for size := 2; size <= 9; size++ {
			got := tuner.Choose(Need{Collective: c, Size: size, Bytes: 1 << 20, Blocks: c == plan.Gather || c == plan.Scatter})
			for root := range size {
				for rank, p := range got.Algorithm.Plans(size, root) {
					if !board.Single(p) {
						t.Errorf("%v, %d ranks: %s with root %d cannot be cut at rank %d", c, size, got.Algorithm.Name, root, rank)
					}
				}
			}
		}
	}
}

// TestCrowdedTakesFewTurns: where ranks share processors, every step that waits
// for another one costs a round of turns, and work that ranks could have done
// side by side is done one after the other.
func TestCrowdedTakesFewTurns(t *testing.T) {
	for _, test := range []struct {
		collective     plan.Collective
		bytes          int
		alone, crowded string
	}{
		{plan.Gather, 256, "binomial", "direct"},
		{plan.Reduction, 64 << 20, "chain", "binomial"},
	} {
		need := Need{Collective: test.collective, Size: 8, Bytes: test.bytes, Blocks: test.collective == plan.Gather}
		alone := NewShared(Host(64<<10, false, 8)).Choose(need)
		crowded := NewShared(Host(64<<10, false, 2)).Choose(need)
		if alone.Algorithm.Name != test.alone || crowded.Algorithm.Name != test.crowded {
			t.Errorf("%v of %d bytes: %s on 8 processors and %s on 2, want %s and %s", test.collective, test.bytes,
				alone.Algorithm.Name, crowded.Algorithm.Name, test.alone, test.crowded)
		}
	}
}

// TestPullsWhereThatIsCheaper: ranks that have a processor each read each other's
// memory as soon as there is much to read. Where many share one, they go by the
// board: what one of them has read there is near for the others.
func TestPullsWhereThatIsCheaper(t *testing.T) {
	for _, test := range []struct {
		collective plan.Collective
		size       int
		bytes      int
		pull       bool
	}{
		{plan.Broadcast, 2, 4 << 10, false},
		{plan.Broadcast, 2, 16 << 10, true},
		{plan.Broadcast, 2, 512 << 10, true},
		{plan.Broadcast, 2, 64 << 20, true},
		{plan.Broadcast, 4, 16 << 10, false},
		{plan.Broadcast, 4, 256 << 10, true},
		{plan.Broadcast, 8, 16 << 10, false},
		{plan.Broadcast, 8, 1 << 20, false},
		{plan.Broadcast, 8, 64 << 20, false},
		{plan.AllGather, 2, 64 << 10, true},
		{plan.AllGather, 8, 64 << 10, false},
		{plan.AllGather, 8, 1 << 20, false},
		{plan.AllToAll, 4, 64 << 10, true},
		{plan.AllToAll, 8, 32 << 10, false},
		{plan.AllToAll, 8, 1 << 20, true},
	} {
		need := Need{Collective: test.collective, Size: test.size, Bytes: test.bytes, Blocks: test.collective != plan.Broadcast}
		if got := NewShared(Host(64<<10, true, 2)).Choose(need); got.Pull != test.pull {
			t.Errorf("%v of %d bytes, %d ranks on 2 processors: %s, pulling %v, want %v",
				test.collective, test.bytes, test.size, got.Algorithm.Name, got.Pull, test.pull)
		}
	}
}

// TestAcross: what goes from one processor to another is all if ranks have one
// each, and otherwise what they do not have from their neighbours.
func TestAcross(t *testing.T) {
	for _, test := range []struct {
		collective       plan.Collective
		algorithm        string
		size, processors int
		want             float64
	}{
		{plan.Broadcast, "flat", 4, 4, 1},
		{plan.Broadcast, "flat", 4, 2, 1. / 3},
		{plan.Broadcast, "flat", 8, 2, 1. / 7},
		{plan.Broadcast, "flat", 8, 1, 0},
		{plan.Broadcast, "chain", 4, 2, 1. / 2},
		{plan.AllToAll, "pairwise", 8, 2, 1. / 2},
	} {
		tuner, need := NewShared(Host(64<<10, true, test.processors)), Need{Collective: test.collective, Size: test.size}
		for _, a := range plan.Algorithms(test.collective) {
			if a.Name != test.algorithm {
				continue
			}
			if got := tuner.across(sharedFiguresOf(a, need), need); math.Abs(got-test.want) > 0.01 {
				t.Errorf("%v by %s, %d ranks on %d processors: %.3f, want %.3f", test.collective, a.Name, test.size, test.processors, got, test.want)
			}
		}
	}
}
