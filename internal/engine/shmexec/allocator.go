package shmexec

import (
	"slices"
	"sync"
)

// AreasMax is the number of communicators of a node that can have shared memory at a time.
const AreasMax = 32

// An Allocator allocates the areas of a node, its parts, to communicators. A part is for one
// communicator at a time. It can be reused by a communicator that contains all nodes of the
// earlier one, so that every node that could still read the old contents takes part in the
// agreement; nodes that are known to have stopped need not. It may be used concurrently.
type Allocator struct {
	mu    sync.Mutex
	parts [AreasMax]part
}

type part struct {
	used   bool
	before []int // the nodes that used it last, in order; nil for an unused part
	undone []int // the value of before at the last Take
}

// The votes of a node for a part, the best first. The largest vote of all nodes decides. A part
// that was used by the same nodes is the best, since other parts suit more communicators. An unused one is the worst: its memory
// would be allocated, and kept.
const (
	same  uint8 = iota // used by exactly these nodes
	dirty              // used by some of these nodes
	clean
	taken
)

// Votes returns the vote of this node for each part, for a communicator of these nodes, given as
// the numbers of this node for them.
func (a *Allocator) Votes(nodes []int) []uint8 {
	a.mu.Lock()
	defer a.mu.Unlock()
	votes := make([]uint8, AreasMax)
	for i := range a.parts {
		votes[i] = a.parts[i].vote(nodes)
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

// Choose returns the part with the best of the largest votes of all nodes, if it is usable: of
// equal ones the first, counted cyclically from a part on.
func Choose(votes []uint8, from int) (part int, ok bool) {
	best := slices.Min(votes)
	for i := range votes {
		if part = (from + i) % len(votes); votes[part] == best {
			break
		}
	}
	return part, best < taken
}

// Take takes the chosen part, unless another communicator of this node has taken it since the
// vote. A part that is not clean must be cleared after all nodes have taken it: a node that
// could not may still read it. The nodes may use the part when all have cleared their areas. If
// one of them could not take the part, the others call [Allocator.Undo].
func (a *Allocator) Take(part int, nodes []int) (isClean, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.parts[part]
	v := p.vote(nodes)
	if v == taken {
		return false, false
	}
	p.used, p.before, p.undone = true, slices.Clone(nodes), p.before
	return v == clean, true
}

// Undo undoes a Take. The part must not have been used.
func (a *Allocator) Undo(part int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &a.parts[part]
	p.used, p.before = false, p.undone
}

// Forget removes nodes that have detached from the memory, so that they cannot read any part.
func (a *Allocator) Forget(nodes []int) {
	isOne := func(n int) bool { return slices.Contains(nodes, n) }
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.parts {
		p := &a.parts[i]
		p.before, p.undone = slices.DeleteFunc(p.before, isOne), slices.DeleteFunc(p.undone, isOne)
	}
}

// Return frees a part.
func (a *Allocator) Return(part int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.parts[part].used = false
}
