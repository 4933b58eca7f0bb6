package nexartest_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// TestSparse: worlds of sparse topologies lose nodes and admit others, and work on in each epoch. Each node has a
// connection to its neighbors of that epoch.
func TestSparse(t *testing.T) {
	for _, topology := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube"} {
		t.Run(topology, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := nexartest.Cluster{
					Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond},
				}.New(t, 8)
				for i := range 8 {
					some, count := []int{(i + 7) % 8, (i + 1) % 8}, int(topology[len(topology)-1]-'0')
					if topology == "hypercube" {
						some, count = []int{i ^ 1, i ^ 2, i ^ 4}, 3
					}
					got := w.Node(i).Neighbors()
					if slices.ContainsFunc(some, func(rank int) bool { return !slices.Contains(got, rank) }) || len(got) != count {
						t.Errorf("node %d has the neighbors %v", i, got)
					}
					for _, p := range w.Node(i).Peers() {
						if isNeighbor := slices.Contains(got, p.Rank); (p.Hops == 1) != isNeighbor || (p.Addr != "") != isNeighbor {
							t.Errorf("node %d: peer %+v, neighbor: want %v", i, p, isNeighbor)
						}
					}
				}
				j := newJob()
				w.Start(j.run)
				time.Sleep(time.Second)
				w.Kill(3)
				time.Sleep(10 * time.Second)
				w.Add()
				time.Sleep(20 * time.Second)
				w.Add()
				time.Sleep(20 * time.Second)
				w.Kill(6)
				w.Kill(0)
				time.Sleep(20 * time.Second)
				r := j.finish(t, w)
				if last := r.views[len(r.views)-1]; !slices.Equal(last, []int{1, 2, 4, 5, 7, 8, 9}) {
					t.Errorf("views %v", r.views)
				}
				for i, err := range r.errs {
					if err != nil && i != 3 && i != 6 && i != 0 {
						t.Errorf("node %d has ended with %v", i, err)
					}
				}
			})
		})
	}
}
