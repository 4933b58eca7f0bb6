package shmexec

import (
	"slices"
	"sync"
)

// AreasMax is the number of boards that a node can have at a time.
const AreasMax = 32

// An Allocator allocates a node's areas to boards. Each of these parts of its memory
// is for one communicator at a time. A part that was used before can be used again by a
// communicator that contains all nodes of the earlier one, so that every node that could
// still read the old contents takes part in the vote; nodes that are known to have
// stopped need not. It may be used by several goroutines.
type Allocator struct {
	mu    sync.Mutex
	parts [AreasMax]part
}

type part struct {
	used   bool
	before []int // the nodes that used it, in order; nil if none has
	undone []int // the value of before until the part was last taken
}

// The votes for a part, the best first. The largest vote of all nodes decides. A part
// that was used by the same nodes is the best: other parts fit more communicators.
const (
	same uint8 = iota // it was used by exactly these nodes
	clean
	dirty // it was used by some of them
	taken
)

// Ballot returns this node's vote for each part, for a communicator of these nodes,
// which are this node's numbers for them.
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

// Choose returns the part that is chosen by all votes together, if there is one: of
// several that are equally good the first one, counted from a part on.
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
// has taken it since the vote. A part that is not clean has to be cleared when
// all nodes have taken theirs: a node that could not may still read it. The nodes may
// use the part when all have cleared theirs; if one of them could not take its part, the
// others call Undo.
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

// Undo gives a part back that was not used.
func (s *Allocator) Undo(part int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.parts[part]
	p.used, p.before = false, p.undone
}

// Forget says that the processes of some nodes have ended, so that they read no part any
// more.
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
