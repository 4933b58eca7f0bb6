package membership

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// report notes that a node has a link to another, or has lost it. At least one of them
// has to be a candidate.
func (p *PendingJoins) report(by, to NodeID, up bool) (known bool) {
	set := func(m map[NodeID]struct{}, id NodeID) {
		if known = true; up {
			m[id] = struct{}{}
		} else {
			delete(m, id)
		}
	}
	if c := p.find(to); c != nil && c.circle != nil {
		set(c.reports, by)
	}
	if c := p.find(by); c != nil && c.circle != nil {
		set(c.claims, to)
	}
	return known
}

// reports returns the nodes that have confirmed their links to a candidate.
func (p *PendingJoins) reports(id NodeID) map[NodeID]struct{} {
	if c := p.find(id); c != nil {
		return c.reports
	}
	return nil
}

// isPaired reports whether both ends of the link between a candidate and another node say
// that it stands.
func (c *candidate) isPaired(id NodeID) bool {
	_, reported := c.reports[id]
	_, claimed := c.claims[id]
	return reported && claimed
}

// isLinkedTo reports whether a candidate that is linked to its circle is linked to a node:
// one of the circle, or one that was a candidate beside it and has entered since.
func (c *candidate) isLinkedTo(id NodeID) bool {
	return slices.Contains(c.circle, id) || c.isPaired(id)
}

// unconfirmed returns the ranks of the nodes of a world that would watch a candidate and
// have not confirmed their links to it. The candidate would have the given rank in a view
// of the given size, behind the world.
func (c *candidate) unconfirmed(world View, rank, size int) (ranks []int) {
	for _, r := range neighbours(size, rank, 0, -1) {
		if r >= world.Size() {
			continue // A newcomer; isPaired counts for these.
		}
		// It was not invited to link itself to nodes outside its circle, and is invited
		// again before it enters a view with them.
		id := world.Nodes[r].ID
		if _, ok := c.reports[id]; !ok && slices.Contains(c.circle, id) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// confirm updates which linked candidates have their links confirmed: each by the nodes
// that would watch it if it entered a view alone.
func (p *PendingJoins) confirm(now time.Time, v View) {
	p.ticked = now
	for _, c := range p.list {
		c.lacks = c.lacks[:0]
		for _, rank := range c.unconfirmed(v, v.Size(), v.Size()+1) {
			c.lacks = append(c.lacks, v.Nodes[rank].ID)
		}
		switch {
		case !c.linked:
			c.confirmed, c.missing = false, time.Time{}
		case len(c.lacks) == 0:
			c.confirmed, c.missing, c.proven = true, time.Time{}, true
		default:
			c.confirmed = false
			if c.missing.IsZero() {
				c.missing = now
			}
		}
	}
}

// confirmedOf returns which of some candidates can enter a view together, with all nodes
// that stay: those that their watchers there confirm. If one cannot, the others may have
// other watchers without it.
func confirmedOf(stay View, enter []*candidate) []*candidate {
	for {
		size, rank := stay.Size()+len(enter), stay.Size()
		left := make([]*candidate, 0, len(enter))
		for i, c := range enter {
			if len(c.unconfirmed(stay, rank+i, size)) == 0 {
				left = append(left, c)
			}
		}
		if len(left) == len(enter) {
			return left
		}
		enter = left
	}
}

// namesMax is how many nodes an error names.
const namesMax = 6

// why says which nodes of a view a candidate has lost, the first by rank, or which have
// not confirmed their links to it.
func (p *PendingJoins) why(c *candidate, v View) string {
	for rank, n := range v.Nodes {
		if lost, ok := c.lost[n.ID]; ok {
			return fmt.Sprintf("it cannot reach rank %d %v: %s", rank, n, lost.reason)
		}
	}
	var names []string
	for _, id := range c.lacks {
		if rank, in := v.Rank(id); in {
			names = append(names, v.Describe(rank))
		}
	}
	if more := len(names) - namesMax; more > 0 {
		names = append(names[:namesMax], fmt.Sprintf("%d more", more))
	}
	lack := ""
	if len(names) > 0 {
		lack = "; no link to it is confirmed by " + strings.Join(names, ", ")
	}
	if !c.linked {
		return fmt.Sprintf("it has not linked itself to all nodes of the world within %v%s", linkTimeout, lack)
	}
	return fmt.Sprintf("it says that it is linked to all nodes of the world, which was not confirmed within %v%s", confirmTimeout, lack)
}
