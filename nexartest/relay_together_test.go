package nexartest_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// TestRelaysKilledTogether: in a hypercube of six nodes, three die at once, among them all neighbors of a node. The
// others continue within seconds: frames that wait for the dead relays delay them no longer.
func TestRelaysKilledTogether(t *testing.T) {
	const recoveryMax = 10 * time.Second // 7 of them until the silence is noticed
	worlds := uint64(10)
	if testing.Short() {
		worlds = 3
	}
	for random := range worlds {
		t.Run(fmt.Sprint(random+1), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := nexartest.Cluster{
					Config: nexar.Config{Topology: "hypercube"}, Link: nexartest.Link{Delay: time.Millisecond}, Random: random + 1,
				}.New(t, 6)
				j := newJob()
				w.Start(j.run)
				time.Sleep(time.Second + time.Duration(w.Rand.IntN(200_000))*time.Microsecond)
				for _, victim := range []int{0, 3, 5} {
					w.Kill(victim)
				}
				killed := time.Now()
				for !j.hasSum(3) && time.Since(killed) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(killed); took > recoveryMax {
					t.Errorf("the others continued after %v, want at most %v", took, recoveryMax)
				}
				j.finish(t, w)
			})
		})
	}
}

// TestNodeWithoutNeighborsDies: a node of a sparse world dies together with all its neighbors, or a moment after them, so that no
// node that watches it lives. The seed, or the neighbors that it has in the next view, notice that: the others continue.
func TestNodeWithoutNeighborsDies(t *testing.T) {
	const n, victim = 9, 4
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		for _, after := range []time.Duration{0, time.Second} {
			if testing.Short() && (after > 0 || topology != "k-regular:4") {
				continue
			}
			t.Run(fmt.Sprintf("%s/%v", topology, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := nexartest.Cluster{Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond}}.New(t, n)
					near := w.Node(victim).Neighbors()
					j := newJob()
					w.Start(j.run)
					time.Sleep(time.Second)
					for _, rank := range near {
						w.Kill(rank)
					}
					time.Sleep(after)
					w.Kill(victim)
					killed := time.Now()
					var want []int
					for rank := range n {
						if rank != victim && !slices.Contains(near, rank) {
							want = append(want, rank)
						}
					}
					for !j.hasSum(int64(len(want))) && time.Since(killed) < time.Minute {
						time.Sleep(10 * time.Millisecond)
					}
					t.Logf("the others continued after %v", time.Since(killed))
					if took := time.Since(killed); took > aloneMax {
						t.Errorf("the others continued after %v, want at most %v", took, aloneMax)
					}
					r := j.finish(t, w)
					if last := r.views[len(r.views)-1]; !slices.Equal(last, want) {
						t.Errorf("views %v, want the last one to be %v", r.views, want)
					}
				})
			})
		}
	}
}

// aloneMax is the time until others continue after the death of a node that no living node watches: a heartbeat timeout each until
// the neighbors, and then the new neighbors, count as silent, and until they cannot be dialed; and some more.
const aloneMax = 18 * time.Second

// awaitSum waits until the last sum of an epoch was sum, for a minute at most.
func (j *job) awaitSum(sum int64) {
	for end := time.Now().Add(time.Minute); !j.hasSum(sum) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
}

// hasSum reports whether the last sum of an epoch was sum.
func (j *job) hasSum(sum int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.sums {
		if s == sum {
			return true
		}
	}
	return false
}
