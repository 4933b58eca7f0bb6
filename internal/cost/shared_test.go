package cost

import (
	"testing"

	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
)

// TestSharedChoices: every collective has a choice for every length and number of ranks, and the
// plans of vectors that must be cut can be cut.
func TestSharedChoices(t *testing.T) {
	const pieceBytes = 256 << 10
	for _, size := range []int{2, 3, 4, 8, 17} {
		tuner := NewShared(Host(pieceBytes, 0), plan.Hosts{})
		for _, c := range plan.Collectives() {
			for bytes := 8; bytes <= 64<<20 && (bytes == 8 || c != plan.Barrier); bytes *= 4 {
				for _, ordered := range []bool{false, c.Reduces()} {
					got := tuner.Choose(Need{Collective: c, Size: size, Bytes: bytes, Ordered: ordered})
					if got.Seconds <= 0 || ordered && !got.Algorithm.Ordered {
						t.Errorf("%v, %d ranks, %d bytes: %+v", c, size, bytes, got)
					}
					single := shmexec.NewSchedule(got.Algorithm.Plans(size, 0)).Compile(0).Single
					if bytes > pieceBytes && !single {
						t.Errorf("%v, %d ranks, %d bytes: %s cannot be cut", c, size, bytes, got.Algorithm.Name)
					}
				}
			}
		}
	}
}

// TestSharedTakesFewSteps: short vectors are exchanged in one step, long ones are reduced by
// all ranks concurrently.
func TestSharedTakesFewSteps(t *testing.T) {
	tuner := NewShared(Host(256<<10, 0), plan.Hosts{})
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

// TestSharedTreesOfEveryRoot: with three ranks the messages of a tree are single chunks if rank
// 0 is its root, but not if rank 2 is.
func TestSharedTreesOfEveryRoot(t *testing.T) {
	tuner := NewShared(Host(64<<10, 0), plan.Hosts{})
	for _, c := range plan.Collectives() {
		if !c.Rooted() {
			continue
		}
		for size := 2; size <= 9; size++ {
			got := tuner.Choose(Need{Collective: c, Size: size, Bytes: 1 << 20, Blocks: c == plan.Gather || c == plan.Scatter})
			for root := range size {
				for rank, p := range got.Algorithm.Plans(size, root) {
					if !p.Single() {
						t.Errorf("%v, %d ranks: %s with root %d cannot be cut at rank %d", c, size, got.Algorithm.Name, root, rank)
					}
				}
			}
		}
	}
}

// TestCrowdedTakesFewTurns: if ranks share processors, every step that waits for another costs
// a round of turns, and concurrent work is serialized.
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
		alone := NewShared(Host(64<<10, 8), plan.Hosts{}).Choose(need)
		crowded := NewShared(Host(64<<10, 2), plan.Hosts{}).Choose(need)
		if alone.Algorithm.Name != test.alone || crowded.Algorithm.Name != test.crowded {
			t.Errorf("%v of %d bytes: %s on 8 processors and %s on 2, want %s and %s", test.collective, test.bytes,
				alone.Algorithm.Name, crowded.Algorithm.Name, test.alone, test.crowded)
		}
	}
}

// TestManyRanksChoose: many ranks have a choice for every collective and length, which can be cut, and
// takes few turns on few processors and few messages of a rank on many.
func TestManyRanksChoose(t *testing.T) {
	for _, size := range []int{17, 65, 100, 128, SharedRanksMax} {
		tuner := NewShared(Host(256<<10, 2), plan.Groups(size))
		for _, c := range plan.Collectives() {
			for _, bytes := range []int{8, 64 << 10, 64 << 20} {
				need := Need{Collective: c, Size: size, Bytes: bytes, Ordered: c.Reduces(), Canonical: c.Reduces() && c < plan.Scan}
				got := tuner.Choose(need)
				if got.Seconds <= 0 || bytes > 64<<10 && !Cuttable(got.Algorithm, need) {
					t.Errorf("%v of %d bytes, %d ranks: %+v", c, bytes, size, got)
				}
			}
		}
	}
	for _, test := range []struct {
		collective plan.Collective
		bytes      int
		processors int
		want       string
	}{
		{plan.Barrier, 0, 2, "leader"},
		{plan.AllReduce, 8, 2, "leader"},
		{plan.AllReduce, 64 << 10, 2, "leader"},
		{plan.AllReduce, 64 << 10, 9, "groups-shares"},
		{plan.AllReduce, 1 << 20, 2, "groups-shares"},
		{plan.Reduction, 4 << 20, 2, "groups"},
		{plan.Reduction, 8, 2, "flat"},
		{plan.Broadcast, 8, 2, "flat"},
		{plan.AllGather, 1 << 10, 2, "leader"},
		{plan.AllGather, 1 << 20, 2, "direct"},
		{plan.ReduceScatter, 1 << 10, 2, "leader"},
		{plan.ReduceScatter, 16 << 20, 2, "staged"},
		{plan.Scan, 8, 2, "groups"},
		{plan.ExclusiveScan, 8, 2, "groups"},
		{plan.AllGather, 1 << 10, 128, "groups"},
		{plan.ReduceScatter, 1 << 10, 128, "groups"},
		{plan.Barrier, 0, 128, "dissemination"},
		{plan.AllReduce, 8, 128, "recursive-doubling"},
		{plan.AllReduce, 1 << 20, 128, "groups-shares"},
	} {
		tuner := NewShared(Host(256<<10, test.processors), plan.Groups(128))
		got := tuner.Choose(Need{Collective: test.collective, Size: 128, Bytes: test.bytes})
		if got.Algorithm.Name != test.want {
			t.Errorf("%v of %d bytes on %d processors: %s, want %s", test.collective, test.bytes, test.processors, got.Algorithm.Name, test.want)
		}
	}
	for _, size := range []int{crowdedMin * 2, 48, 64, SharedRanksMax} {
		tuner := NewShared(Host(256<<10, 2), plan.Groups(size))
		if got := tuner.Choose(Need{Collective: plan.Barrier, Size: size}).Algorithm.Name; got != "leader" {
			t.Errorf("barrier of %d ranks on 2 processors: %s, want leader, since a rank of other barriers maps many areas", size, got)
		}
	}
}

// TestBoundsDoNotChangeChoices: the lower bounds of times exclude no algorithm that would be chosen, in any order of calls.
func TestBoundsDoNotChangeChoices(t *testing.T) {
	for _, size := range []int{3, 17, 64, 100, SharedRanksMax} {
		for _, processors := range []int{0, 2, 128} {
			bounded, whole := NewShared(Host(256<<10, processors), plan.Groups(size)), NewShared(Host(256<<10, processors), plan.Groups(size))
			whole.tuner.least = nil
			for _, bytes := range []int{8, 64 << 20, 64 << 10, 1 << 20, 512} {
				for _, c := range plan.Collectives() {
					need := Need{Collective: c, Size: size, Bytes: bytes, Ordered: c.Reduces() && bytes == 512, Uneven: bytes == 1<<20}
					got, want := bounded.Choose(need), whole.Choose(need)
					if got.Index != want.Index || got.Seconds != want.Seconds {
						t.Errorf("%v of %d bytes, %d ranks on %d processors: %s in %v s, want %s in %v s", c, bytes, size, processors,
							got.Algorithm.Name, got.Seconds, want.Algorithm.Name, want.Seconds)
					}
				}
			}
		}
	}
}

// TestPerPeer: every rank receives at least PerPeer messages from each other rank.
func TestPerPeer(t *testing.T) {
	for _, size := range []int{2, 3, 8, 17, 40} {
		forEach(size, func(c plan.Collective, _ int, a plan.Algorithm) {
			for rank, p := range a.Plans(size, 0) {
				if got, want := shmexec.LoadOf(p).Awaits, a.PerPeer*(size-1); got < want {
					t.Errorf("%v/%s: rank %d of %d receives %d messages, want at least %d", c, a.Name, rank, size, got, want)
				}
			}
		})
	}
}

// TestNoLongPlans: the choice for short vectors of many ranks makes no plans of algorithms with PerPeer.
func TestNoLongPlans(t *testing.T) {
	const size = 256
	s := NewShared(Host(1<<20, 2), plan.Groups(size))
	n := Need{Collective: plan.AllReduce, Size: size, Bytes: 8}
	s.Choose(n)
	for key, f := range s.figures {
		a := plan.AlgorithmsOn(n.Collective, s.tuner.hosts)[key.index]
		if a.PerPeer > 0 && len(f.loads) > 0 {
			t.Errorf("%s: %d plans were made", a.Name, len(f.loads))
		}
	}
}
