package board

import (
	"slices"
	"sync"
)

// ShelfSize is how many boards a node can take part in at a time.
const ShelfSize = 32

// A Shelf says which parts of a node's memory are boards. Each part is an area
// of its own for one communicator, and is used again when its ranks have parted:
// by a communicator that has all of them, so that whoever could still look at
// what was there takes part in the vote for it. It may be used by several
// goroutines.
type Shelf struct {
	mu    sync.Mutex
	parts [ShelfSize]part
}

type part struct {
	used   bool
	before []int // the nodes that had it, in order; nil if nobody has
}

// The votes for a part. The largest of all nodes' counts.
const (
	clean uint8 = iota
	dirty       // it was used, and has to be cleared
	taken
)

// Ballot is a vote of this node for each part, for a communicator of so many
// nodes, which are numbers that this node has given them.
func (s *Shelf) Ballot(nodes []int) []uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	votes := make([]uint8, ShelfSize)
	for i := range s.parts {
		p := &s.parts[i]
		among := func(n int) bool { return slices.Contains(nodes, n) }
		switch {
		case p.used || slices.ContainsFunc(p.before, func(n int) bool { return !among(n) }):
			votes[i] = taken
		case p.before != nil:
			votes[i] = dirty
		}
	}
	return votes
}

// Take takes the part on which all votes together fall, if there is one. If it
// is not clean, every node clears its own, and they wait for each other before
// they use it.
func (s *Shelf) Take(votes []uint8, nodes []int) (part int, isClean, ok bool) {
	part = slices.IndexFunc(votes, func(v uint8) bool { return v < taken })
	if part < 0 {
		return 0, false, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.parts[part]
	p.used, p.before = true, slices.Clone(nodes)
	return part, votes[part] == clean, true
}

// Return gives a part back.
func (s *Shelf) Return(part int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[part].used = false
}

// Part is a part of the memory of a node, which has room for all of them.
func Part(memory []byte, part int) []byte {
	size := len(memory) / ShelfSize / line * line
	return memory[part*size : (part+1)*size : (part+1)*size]
}
