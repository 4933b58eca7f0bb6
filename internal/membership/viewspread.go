package membership

import (
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/topology"
)

// A ViewSpread is the part of the seed in the distribution of one difference. The seed sends the
// difference to the roots of the tree, and later to all nodes of subtrees that have not confirmed it.
type ViewSpread struct {
	epoch    uint64
	base     View
	tree     *viewTree
	waiting  []uint32
	direct   []bool // nodes that the seed has sent the difference
	deadline time.Time
}

// NewViewSpread returns the ViewSpread of a difference of the view base, and the nodes that get it
// first. links is the topology of the world.
func NewViewSpread(now time.Time, links topology.Topology, base View, d *Difference) (s *ViewSpread, to []NodeID) {
	s = &ViewSpread{epoch: d.Epoch, base: base, tree: newViewTree(links, base.Size(), d.Gone, d.Epoch), direct: make([]bool, base.Size())}
	s.waiting = s.tree.children(fromSeed)
	height := 0
	for _, root := range s.waiting {
		s.direct[root] = true
		height = max(height, s.tree.height[root])
		to = append(to, base.Nodes[root].ID)
	}
	s.deadline = now.Add(confirmPatience * time.Duration(height+1))
	return s, to
}

// Confirmation handles the confirmation of a root. It returns the nodes that still need the
// difference.
func (s *ViewSpread) Confirmation(from NodeID, c Confirmation) (to []NodeID) {
	if c.Epoch != s.epoch || len(c.Missing) > missingMax || !s.settle(from) {
		return nil
	}
	return s.missing(c.Missing)
}

// Unreachable records that a root has no connection to the seed. It returns the nodes that still
// need the difference.
func (s *ViewSpread) Unreachable(id NodeID) (to []NodeID) {
	if !s.settle(id) {
		return nil
	}
	rank, _ := s.base.Rank(id)
	return s.missing([]uint32{uint32(rank)})
}

// settle ends the wait for a root. It reports whether the seed waits for the node.
func (s *ViewSpread) settle(root NodeID) bool {
	before := len(s.waiting)
	s.waiting = slices.DeleteFunc(s.waiting, func(rank uint32) bool { return s.base.Nodes[rank].ID == root })
	return len(s.waiting) < before
}

// missing returns the nodes of some subtrees, without those that the seed has sent the difference.
func (s *ViewSpread) missing(subtrees []uint32) (to []NodeID) {
	for _, rank := range s.tree.subtrees(subtrees) {
		if !s.direct[rank] {
			s.direct[rank] = true
			to = append(to, s.base.Nodes[rank].ID)
		}
	}
	return to
}

// Deadline returns the time of the Tick, if there is one.
func (s *ViewSpread) Deadline() (at time.Time, ok bool) { return s.deadline, len(s.waiting) > 0 }

// Tick returns the nodes that still need the difference, when the roots have had time to confirm it.
func (s *ViewSpread) Tick(now time.Time) (to []NodeID) {
	if len(s.waiting) == 0 || now.Before(s.deadline) {
		return nil
	}
	late := s.waiting
	s.waiting = nil
	return s.missing(late)
}
