package nexartest_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/nexartest"
)

// TestSparse: worlds of sparse topologies lose nodes and admit others, and work on in each epoch. Each node has a
// connection to its neighbors of that epoch.
func TestSparse(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
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

// TestRandomRosterChanges: random nodes join, leave and die in a sparse world, one or two at a time. After each change each node
// of the world has connections to its neighbors and to no other node, these reach all nodes, and the world works.
func TestRandomRosterChanges(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for i, topology := range []string{"k-regular:2", "k-regular:3", "k-regular:4", "hypercube"} {
		if testing.Short() && topology != "hypercube" {
			continue // The race detector needs half a minute for them.
		}
		t.Run(topology, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := nexartest.Cluster{
					Config: nexar.Config{Topology: topology}, Link: nexartest.Link{Delay: time.Millisecond}, Random: uint64(i + 1),
				}.New(t, 8)
				x := &roster{T: t, w: w, j: newJob()}
				x.j.pause = time.Second
				w.Start(x.j.run)
				for i := range 8 {
					x.live = append(x.live, i)
				}
				x.check()
				for range 2 {
					for _, kind := range w.Rand.Perm(3) {
						x.change(kind, 1+w.Rand.IntN(2))
						time.Sleep(15 * time.Second)
						x.check()
					}
				}
				r := x.j.finish(t, w)
				for i, err := range r.errs {
					if err != nil && slices.Contains(x.live, i) {
						t.Errorf("node %d has ended with %v", i, err)
					}
				}
			})
		})
	}
}

// A roster is a world with random changes.
type roster struct {
	*testing.T
	w    *nexartest.World
	j    *job
	live []int // the nodes of the world
}

// change lets some nodes join (0), die (1) or leave (2).
func (x *roster) change(kind, count int) {
	for range count {
		if kind == 0 {
			x.live = append(x.live, x.w.Add())
			continue
		}
		i := x.w.Rand.IntN(len(x.live))
		node := x.live[i]
		x.live = slices.Delete(x.live, i, i+1)
		if kind == 1 {
			x.w.Kill(node)
		} else {
			go x.w.Node(node).Leave(x.Context())
		}
	}
	x.Logf("%v: change %d of %d: %v", time.Now().Format("04:05"), kind, count, x.live)
}

// check checks the connections of the nodes of the world.
func (x *roster) check() {
	x.Helper()
	graph := make([][]int, len(x.live)) // by rank
	for _, i := range x.live {
		n := x.w.Node(i)
		c, near := n.World(), n.Neighbors()
		if c.Size() != len(x.live) {
			x.Fatalf("node %d is in a world of %d nodes, want %d", i, c.Size(), len(x.live))
		}
		for _, p := range n.Peers() {
			isNear := slices.Contains(near, p.Rank)
			if isNear && p.Addr == "" || (p.Hops == 1) != isNear || p.Hops < 1 || p.Hops >= len(x.live) {
				x.Errorf("node %d, rank %d of %d with the neighbors %v, shows for rank %d: %+v", i, c.Rank(), c.Size(), near, p.Rank, p)
			}
			if !isNear && p.Transport != "relay" {
				x.Errorf("node %d, rank %d, has a connection to rank %d, which is not one of its neighbors %v: %+v", i, c.Rank(), p.Rank, near, p)
			}
		}
		graph[c.Rank()] = near
	}
	reached := map[int]bool{0: true}
	for queue := []int{0}; len(queue) > 0; queue = queue[1:] {
		for _, rank := range graph[queue[0]] {
			if !reached[rank] {
				reached[rank] = true
				queue = append(queue, rank)
			}
		}
	}
	if len(reached) != len(x.live) {
		x.Errorf("the neighbors %v do not connect all ranks", graph)
	}
}
