package membership

import (
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/topology"
)

// A WatchGraph says which nodes of a view watch which. In a sparse topology the neighbors of a node are its
// watches and its watchers. In the full topology they are those of [Watched] and [Watchers].
type WatchGraph struct {
	Topology topology.Topology
	// Count is the number of nodes that a node watches in the full topology; 0 means 6.
	Count int
}

// Watched returns the ranks that a rank of a view watches.
func (g WatchGraph) Watched(v View, rank int) []int {
	if !g.Topology.IsFull() {
		return g.Topology.Graph(v.Size()).Neighbors(rank)
	}
	return Watched(v, rank, g.Count)
}

// Watchers returns the ranks that watch a rank of a view.
func (g WatchGraph) Watchers(v View, rank int) []int {
	if !g.Topology.IsFull() {
		return g.Watched(v, rank)
	}
	return Watchers(v, rank, g.Count)
}

// Ranks returns the ranks that a rank of a view watches, and those that watch it.
func (g WatchGraph) Ranks(v View, rank int) []int {
	if !g.Topology.IsFull() {
		return g.Watched(v, rank)
	}
	return append(Watched(v, rank, g.Count), Watchers(v, rank, g.Count)...)
}

// Among returns the function that returns the ranks that a rank watches, and those that watch it, in a part of a view. The part has the given
// ranks of the view in this order, and other ranks are left out.
func (g WatchGraph) Among(v View, part []int) func(rank int) []int {
	return func(rank int) (ranks []int) {
		for _, r := range g.Ranks(v, part[rank]) {
			if i := slices.Index(part, r); i >= 0 {
				ranks = append(ranks, i)
			}
		}
		return ranks
	}
}

// Connects reports whether one of two ranks of a view watches the other.
func (g WatchGraph) Connects(v View, a, b int) bool {
	if !g.Topology.IsFull() {
		return g.Topology.Graph(v.Size()).IsNeighbor(a, b)
	}
	return slices.Contains(Watched(v, a, g.Count), b) || slices.Contains(Watched(v, b, g.Count), a)
}

// Watches reports whether a node watches the named peer or is watched by it. A node outside the view, or
// without a view, counts as watched.
func (g WatchGraph) Watches(v *View, self NodeID, peer string) bool {
	id, err := ParseNodeID(peer)
	if v == nil || err != nil {
		return true
	}
	a, in := v.Rank(self)
	b, there := v.Rank(id)
	return !in || !there || g.Connects(*v, a, b)
}

// LinksOfInvited returns the indices of nodes of an invitation. The invited node, the last one, links itself to
// these: all of them in the full topology, otherwise its neighbors, if it enters the world alone or together
// with all candidates of the invitation.
func LinksOfInvited(t topology.Topology, world, size int) (links []int) {
	together := t.Graph(size).Neighbors(size - 1)
	for _, rank := range t.Graph(world + 1).Neighbors(world) {
		if !slices.Contains(together, rank) {
			links = append(links, rank)
		}
	}
	links = append(links, together...)
	slices.Sort(links)
	return links
}

// unconfirmedAlone returns the ranks of a world that have not confirmed their links to a candidate and must do so
// before it enters alone.
func (p *PendingJoins) unconfirmedAlone(c *candidate, world View) []int {
	if p.Topology.IsFull() {
		return c.unconfirmed(world, world.Size(), world.Size()+1)
	}
	return p.lacking(c, world, []*candidate{c}, world.Size())
}

// lacking returns the ranks of the neighbors of a candidate in a view, in a sparse topology, that have not
// confirmed their links to it. The candidate has the given rank, and the ranks from that of world on are
// those of candidates that enter as well.
func (p *PendingJoins) lacking(c *candidate, world View, enter []*candidate, rank int) (ranks []int) {
	for _, r := range p.Topology.Graph(world.Size() + len(enter)).Neighbors(rank) {
		if r >= world.Size() {
			if !c.isPaired(enter[r-world.Size()].node.ID) {
				ranks = append(ranks, r)
			}
		} else if _, ok := c.reports[world.Nodes[r].ID]; !ok {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// neighborsConfirmed returns the candidates that can enter a view of a sparse topology together: the first one
// that all its neighbors confirm, and each later one with which this remains so for all of them. The
// neighbors of a candidate depend on the number of those that enter with it.
func (p *PendingJoins) neighborsConfirmed(stay View, candidates []*candidate) (enter []*candidate) {
	for _, c := range candidates {
		enter = append(enter, c)
		for i, other := range enter {
			if len(p.lacking(other, stay, enter, stay.Size()+i)) > 0 {
				enter = enter[:len(enter)-1]
				break
			}
		}
	}
	return enter
}

// inviteAgain makes candidates eligible for another invitation if the world has changed since the last one
// such that a candidate has other neighbors than those of its invitation. A candidate is
// invited at most once within invitePause.
func (p *PendingJoins) inviteAgain(now time.Time, v View) {
	if p.Topology.IsFull() {
		return
	}
	for _, c := range p.list {
		if c.peers == nil || now.Before(c.invited.Add(p.stall)) {
			continue
		}
		for _, rank := range p.Topology.Graph(v.Size() + 1).Neighbors(v.Size()) {
			if id := v.Nodes[rank].ID; !slices.Contains(c.links, id) && !c.isPaired(id) {
				p.again(c)
				break
			}
		}
	}
}
