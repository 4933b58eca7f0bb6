package shmexec

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// count returns the largest vote of the nodes for each part.
func count(allocators []*Allocator, nodes []int) []uint8 {
	all := make([]uint8, AreasMax)
	for _, n := range nodes {
		for i, v := range allocators[n].Votes(nodes) {
			all[i] = max(all[i], v)
		}
	}
	return all
}

// A testComm is a communicator of some nodes, from the votes for its part on.
type testComm struct {
	nodes []int
	votes []uint8
	part  int
	open  map[int]bool // by node
}

// take takes the part on all nodes, or on none.
func (c *testComm) take(t *testing.T, allocators []*Allocator, from int, touched map[[2]int]bool) (ok bool) {
	part, ok := Choose(c.votes, from)
	if !ok {
		return false
	}
	c.part = part
	for _, n := range c.nodes {
		isClean, taken := allocators[n].Take(part, c.nodes)
		c.open[n] = taken
		ok = ok && taken
		if taken && isClean && touched[[2]int{n, part}] {
			t.Fatalf("part %d of node %d was used, but Take reports it as clean", part, n)
		}
	}
	for n, taken := range c.open {
		if taken && !ok {
			allocators[n].Undo(part)
			c.open[n] = false
		}
		touched[[2]int{n, part}] = touched[[2]int{n, part}] || ok
	}
	return ok
}

// TestAllocator: nodes form communicators in any combination, several at a time, and leave them in
// any order. Two communicators with a common node never use the same part, nor does a
// communicator while a node of an earlier one could still read the part. A clean part is unused.
func TestAllocator(t *testing.T) {
	const nodes = 5
	rng := rand.New(rand.NewPCG(1, 1))
	late := 0
	for range 100 {
		var comms, voting []*testComm
		allocators := make([]*Allocator, nodes)
		for i := range allocators {
			allocators[i] = new(Allocator)
		}
		touched := make(map[[2]int]bool) // node and part
		for range 200 {
			if rng.IntN(2) == 0 && len(comms) > 0 {
				c := comms[rng.IntN(len(comms))]
				if n := c.nodes[rng.IntN(len(c.nodes))]; c.open[n] {
					c.open[n] = false
					allocators[n].Return(c.part)
				}
				continue
			}
			members := rng.Perm(nodes)[:2+rng.IntN(nodes-1)]
			slices.Sort(members)
			voting = append(voting, &testComm{nodes: members, votes: count(allocators, members), open: make(map[int]bool)})
			if rng.IntN(3) > 0 {
				continue
			}
			for _, c := range voting {
				if !c.take(t, allocators, rng.IntN(2), touched) {
					late++
					continue
				}
				wantUnread(t, comms, c)
				comms = append(comms, c)
			}
			voting = nil
		}
	}
	if late == 0 {
		t.Error("no communicator was too late for a part: the test does not cover that")
	}
}

// wantUnread checks that no node is left in a communicator that had the part of a new one and has a
// node in common with it.
func wantUnread(t *testing.T, comms []*testComm, c *testComm) {
	t.Helper()
	for _, o := range comms {
		for n, open := range o.open {
			// A node in a communicator reads the areas of all others.
			if open && o.part == c.part && slices.ContainsFunc(c.nodes, func(m int) bool { return slices.Contains(o.nodes, m) }) {
				t.Fatalf("part %d for %v, while node %d still uses it in %v", c.part, c.nodes, n, o.nodes)
			}
		}
	}
}

// TestAllocatorForgets: a part is reusable after the other nodes that used it have ended, any number
// of times, and not before. It is taken before an unused one.
func TestAllocatorForgets(t *testing.T) {
	for _, told := range []bool{true, false} {
		allocator, found := new(Allocator), 0
		for peer := 1; peer <= 3*AreasMax; peer++ {
			part, ok := Choose(allocator.Votes([]int{0, peer}), 0)
			if !ok {
				continue
			}
			found++
			if isClean, ok := allocator.Take(part, []int{0, peer}); !ok || isClean != (peer == 1 || !told) {
				t.Errorf("Forget %t, peer %d: part %d is clean: %t", told, peer, part, isClean)
			}
			allocator.Return(part)
			if told {
				allocator.Forget([]int{peer})
			}
		}
		if want := map[bool]int{true: 3 * AreasMax, false: AreasMax}[told]; found != want {
			t.Errorf("Forget %t: %d parts were taken, want %d", told, found, want)
		}
	}
}

// TestPartsAreReused: the same nodes can leave and form communicators any number of times and find
// a part, also when subsets of them do so in between. Other nodes find none if it is unsafe.
func TestPartsAreReused(t *testing.T) {
	allocators := []*Allocator{new(Allocator), new(Allocator), new(Allocator)}
	groups := [][]int{{0, 1}, {0, 1, 2}, {1, 2}, {0, 2}}
	want := make(map[int]int) // the part of a group
	for i := range 3 * AreasMax {
		for g, nodes := range groups {
			c := testComm{nodes: nodes, votes: count(allocators, nodes), open: make(map[int]bool)}
			if !c.take(t, allocators, 0, make(map[[2]int]bool)) {
				t.Fatalf("time %d: no part for %v", i, nodes)
			}
			// The first time a larger group takes the part of a smaller one.
			if part := want[g]; i > 1 && c.part != part {
				t.Fatalf("time %d: part %d for %v, which had %d", i, c.part, nodes, part)
			}
			want[g] = c.part
			for _, n := range nodes {
				allocators[n].Return(c.part)
			}
		}
	}
	some := []int{1, 2}
	votes := count(allocators, some)
	if v := votes[want[0]]; v != taken {
		t.Errorf("the part of %v can be used by %v: %d", groups[0], some, v)
	}
	for i := 0; ; i++ {
		c := testComm{nodes: some, votes: count(allocators, some), open: make(map[int]bool)}
		if c.take(t, allocators, 0, make(map[[2]int]bool)) {
			continue
		}
		if least := AreasMax - len(groups); i < least || i > AreasMax {
			t.Errorf("%d parts at a time, want at least %d", i, least)
		}
		return
	}
}
