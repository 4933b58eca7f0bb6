package nexartest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// TestRelaysKilledTogether: in a hypercube of six nodes, three die at once, among them all neighbors of a node. The
// others continue within seconds: frames that wait for the dead relays delay them no longer.
func TestRelaysKilledTogether(t *testing.T) {
	const recoveryMax = 8 * time.Second // 5 of them until the silence is noticed
	for random := range uint64(10) {
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
