package shmexec

import (
	"slices"
	"sync"
)

// AreasMax is how many boards a node can take part in at a time.
const AreasMax = 32

// A Allocator says which of a node's areas are boards. Each of these parts of its memory
// is for one communicator, and is used again when its ranks have parted:
// by a communicator that has all of them, so that whoever could still look at
// what was there takes part in the vote for it; but for nodes that are known to look
// at nothing any more. It may be used by several goroutines.
type Allocator struct {
	mu    sync.Mutex
	parts [AreasMax]part
}

type part struct {
	used   bool
	before []int // the nodes that had it, in order; nil if nobody has
	undone []int // what before was until it was last taken
}

// The votes for a part, the best first. The largest of all nodes' counts. A part
// that was used by the same nodes is the best: any other can then be of use to
// more communicators.
const (
	same uint8 = iota // it was used by just these nodes
	clean
	dirty // it was used by some of them
	taken
)

// Ballot is a vote of this node for each part, for a communicator of so many
// nodes, which are numbers that this node has given them.
func (s *Allocator) Ballot(nodes []int) []uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	votes := make([]uint8, AreasMax)
	for i := range s.parts {
		votes[i] = s.parts[i].vote(nodes)
	}
	return votes
}

func (p *part) vote(nodes []int) uint8 {
	switch {
	case p.used || slices.ContainsFunc(p.before, func(n int) bool { return !slices.Contains(nodes, n) }):
		return taken
	case p.before == nil:
		return clean
	case len(p.before) < len(nodes):
		return dirty
	}
	return same
}

// Choose is the part on which all votes together fall, if there is one: of
// several that are as good the first from some part on.
func Choose(votes []uint8, from int) (part int, ok bool) {
	best := slices.Min(votes)
	for i := range votes {
		if part = (from + i) % len(votes); votes[part] == best {
			break
		}
	}
	return part, best < taken
}

// Take takes the part that was chosen, unless another communicator of this node
// has had it since the vote. If it is not clean, it has to be cleared, as soon as
// all nodes have taken theirs: one that could not may still look at it. They may
// use it when all have done so; if one of them could not, the others call Undo.
func (s *Allocator) Take(part int, nodes []int) (isClean, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.parts[part]
	v := p.vote(nodes)
	if v == taken {
		return false, false
	}
	p.used, p.before, p.undone = true, slices.Clone(nodes), p.before
	return v == clean, true
}

// Undo gives a part back that nobody has used.
func (s *Allocator) Undo(part int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.parts[part]
	p.used, p.before = false, p.undone
}

// Forget says that some nodes look at nothing any more, as their processes have ended.
func (s *Allocator) Forget(nodes []int) {
	isOne := func(n int) bool { return slices.Contains(nodes, n) }
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.parts {
		p := &s.parts[i]
		p.before, p.undone = slices.DeleteFunc(p.before, isOne), slices.DeleteFunc(p.undone, isOne)
	}
}

// Return gives a part back.
func (s *Allocator) Return(part int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[part].used = false
}
