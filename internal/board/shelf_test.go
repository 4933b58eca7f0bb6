package board

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// count is the largest of all votes.
func count(shelves []*Shelf, nodes []int) []uint8 {
	all := make([]uint8, ShelfSize)
	for _, n := range nodes {
		for i, v := range shelves[n].Ballot(nodes) {
			all[i] = max(all[i], v)
		}
	}
	return all
}

// TestShelf: nodes make communicators of any of them, and part in any order.
// No part is ever used by two communicators that have a node in common, nor
// again while one that has not parted yet could look at what it was used for;
// and what is said to be clean has not been used.
func TestShelf(t *testing.T) {
	const nodes = 5
	type comm struct {
		nodes []int
		part  int
		open  map[int]bool // by node
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		shelves := make([]*Shelf, nodes)
		for i := range shelves {
			shelves[i] = new(Shelf)
		}
		var comms []*comm
		touched := make(map[[2]int]bool) // node and part
		for range 200 {
			if rng.IntN(2) == 0 && len(comms) > 0 {
				c := comms[rng.IntN(len(comms))]
				n := c.nodes[rng.IntN(len(c.nodes))]
				if c.open[n] {
					c.open[n] = false
					shelves[n].Return(c.part)
				}
				continue
			}
			members := rng.Perm(nodes)[:2+rng.IntN(nodes-1)]
			slices.Sort(members)
			votes := count(shelves, members)
			c := &comm{nodes: members, open: make(map[int]bool)}
			some := false
			for _, n := range members {
				part, isClean, ok := shelves[n].Take(votes, members)
				some = some || ok
				if !ok {
					continue
				}
				c.part = part
				c.open[n] = true
				if isClean && touched[[2]int{n, part}] {
					t.Fatalf("part %d of node %d was used, and is said to be clean", part, n)
				}
			}
			if !some {
				continue
			}
			for _, n := range members {
				touched[[2]int{n, c.part}] = true
			}
			for _, o := range comms {
				for n, open := range o.open {
					// A node that is still there looks at the parts of all others.
					if open && o.part == c.part && slices.ContainsFunc(c.nodes, func(m int) bool { return slices.Contains(o.nodes, m) }) {
						t.Fatalf("part %d for %v, while node %d is still in that of %v", c.part, c.nodes, n, o.nodes)
					}
				}
			}
			comms = append(comms, c)
		}
	}
}

// TestShelfIsUsedAgain: the same ranks can part and come together for ever, and
// find a board every time; others find none where it would not be safe.
func TestShelfIsUsedAgain(t *testing.T) {
	shelves := []*Shelf{new(Shelf), new(Shelf), new(Shelf)}
	both, others := []int{0, 1}, []int{1, 2}
	for i := range 3 * ShelfSize {
		votes := count(shelves, both)
		for _, n := range both {
			part, isClean, ok := shelves[n].Take(votes, both)
			if !ok || part != 0 || isClean != (i == 0) {
				t.Fatalf("time %d: part %d, clean %v, ok %v", i, part, isClean, ok)
			}
			shelves[n].Return(part)
		}
	}
	if votes := count(shelves, others); votes[0] != taken {
		t.Errorf("part 0 can be used by others: %d", votes[0])
	}
	for range ShelfSize - 1 {
		votes := count(shelves, others)
		for _, n := range others {
			if _, isClean, ok := shelves[n].Take(votes, others); !ok || !isClean {
				t.Fatal("no part that is clean")
			}
		}
	}
	if _, _, ok := shelves[1].Take(count(shelves, others), others); ok {
		t.Error("more parts than there are")
	}
}

func TestPart(t *testing.T) {
	memory := make([]byte, ShelfSize*AreaSize(1000))
	end := 0
	for i := range ShelfSize {
		p := Part(memory, i)
		if at := cap(memory) - cap(memory[i*len(p):]); at < end || at%line != 0 || PieceBytes(len(p)) < 900 {
			t.Fatalf("part %d begins at %d and has room for pieces of %d", i, at, PieceBytes(len(p)))
		}
		end += len(p)
	}
}
