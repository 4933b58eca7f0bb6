package shmexec

import (
	"reflect"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
)

// TestAlike: the program of a rank is the same if only the plans are made that it needs.
func TestAlike(t *testing.T) {
	alike := 0
	for _, c := range plan.Collectives() {
		for _, a := range plan.Algorithms(c) {
			if !a.Alike {
				continue
			}
			alike++
			for _, size := range []int{2, 3, 4, 9, 33} {
				for root := range size {
					if root > 0 && !c.Rooted() {
						break
					}
					plans := a.Plans(size, root)
					for rank := range size {
						if got, want := CompileAlgorithm(a, size, root, rank), NewSchedule(plans).Compile(rank); !reflect.DeepEqual(got, want) {
							t.Fatalf("%v %s, rank %d of %d, root %d: got %+v, want %+v", c, a.Name, rank, size, root, got, want)
						}
					}
				}
			}
		}
	}
	if alike == 0 {
		t.Error("no algorithm has plans that are alike")
	}
}

// TestAlikeSchedules: for every size and root, all ranks but the root post as often and as many chunks. So a schedule of few ranks has the limits of
// one of all.
func TestAlikeSchedules(t *testing.T) {
	require.NoRace(t, "it starts no goroutine")
	type limits struct {
		posts, units int
		single       bool
	}
	for _, c := range plan.Collectives() {
		for _, a := range plan.Algorithms(c) {
			for size := 1; a.Alike && size <= 130; size++ {
				for root := 0; root == 0 || root < size && c.Rooted(); root++ {
					all := NewSchedule(a.Plans(size, root))
					few := ScheduleOf(a, size, root)
					if got, want := (limits{few.posts, few.units, few.single}), (limits{all.posts, all.units, all.single}); got != want {
						t.Fatalf("%v %s, size %d, root %d: a schedule of few ranks has limits %+v, want %+v", c, a.Name, size, root, got, want)
					}
					var like limits
					for rank, r := range all.ranks {
						l := limits{len(r.rounds), r.units, r.Single()}
						if rank == root {
							continue
						}
						if like == (limits{}) {
							like = l
						}
						if l != like {
							t.Fatalf("%v %s, size %d, root %d: rank %d has %+v, others have %+v", c, a.Name, size, root, rank, l, like)
						}
					}
				}
			}
		}
	}
}

// TestAlikeMakesFewPlans: the program of a rank that waits for the root alone needs the plans of few ranks.
func TestAlikeMakesFewPlans(t *testing.T) {
	const size = 256
	for _, a := range plan.Algorithms(plan.AllReduce) {
		if !a.Alike {
			continue
		}
		made, of := 0, a.Plan
		a.Plan = func(rank, size, root int) plan.Plan {
			made++
			return of(rank, size, root)
		}
		if CompileAlgorithm(a, size, 0, size-1); made > alikeRanks+1 {
			t.Errorf("%s: %d plans, want at most %d", a.Name, made, alikeRanks+1)
		}
	}
}
