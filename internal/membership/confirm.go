package membership

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// report records that a node has or has lost a link to another. One of the two must be a
// candidate.
func (p *PendingJoins) report(by, to NodeID, up bool) (known bool) {
	set := func(m map[NodeID]struct{}, id NodeID) {
		if known = true; up {
			m[id] = struct{}{}
		} else {
			delete(m, id)
		}
	}
	if c := p.find(to); c != nil && c.peers != nil {
		set(c.reports, by)
	}
	if c := p.find(by); c != nil && c.peers != nil {
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

// isPaired reports whether both a candidate and another node have reported the link
// between them.
func (c *candidate) isPaired(id NodeID) bool {
	_, reported := c.reports[id]
	_, claimed := c.claims[id]
	return reported && claimed
}

// isLinkedTo reports whether a linked candidate is linked to a node: one of its peers,
// or a former candidate beside it that has entered since.
func (c *candidate) isLinkedTo(id NodeID) bool {
	return slices.Contains(c.peers, id) || c.isPaired(id)
}

// unconfirmed returns the ranks of the nodes of a world that would watch a candidate
// and have not confirmed their links to it. The candidate would have the given rank in
// a view of the given size, after all nodes of the world.
func (c *candidate) unconfirmed(world View, rank, size int) (ranks []int) {
	for _, r := range neighbors(size, rank, 0, -1) {
		if r >= world.Size() {
			continue // A newcomer; isPaired applies.
		}
		// The candidate was not invited to link itself to other nodes, and is invited
		// again before it enters a view with them.
		id := world.Nodes[r].ID
		if _, ok := c.reports[id]; !ok && slices.Contains(c.peers, id) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// confirm marks the linked candidates as confirmed or not. The links of a confirmed one are
// confirmed by all nodes that would watch them if they entered a view alone.
func (p *PendingJoins) confirm(now time.Time, v View) {
	p.ticked = now
	p.inviteAgain(now, v)
	for _, c := range p.list {
		c.lacks = c.lacks[:0]
		for _, rank := range p.unconfirmedAlone(c, v) {
			c.lacks = append(c.lacks, v.Nodes[rank].ID)
		}
		switch {
		case !c.linked:
			c.confirmed, c.missing = false, time.Time{}
		case len(c.lacks) == 0:
			if !c.confirmed {
				p.newly = append(p.newly, c.node.ID)
			}
			c.confirmed, c.missing, c.proven = true, time.Time{}, true
		case slices.ContainsFunc(c.peers, func(id NodeID) bool { _, in := v.Rank(id); return !in }):
			p.again(c) // Without them, other nodes would watch it, and it may lack links to those.
		default:
			c.confirmed = false
			if c.missing.IsZero() {
				c.missing = lastOf(now, p.grace)
			}
		}
	}
}

// confirmedOf returns the candidates that can enter a view together, beside all nodes that
// stay: their watchers in that view confirm them. If one cannot enter, the others have other
// watchers without it.
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

// namesMax bounds the nodes that an error names.
const namesMax = 6

// why describes why a candidate cannot enter: the first node, by rank, that it has
// lost, or the nodes that have not confirmed their links to it.
func (p *PendingJoins) why(c *candidate, v View) string {
	for rank, n := range v.Nodes {
		if lost, ok := c.lost[n.ID]; ok {
			return fmt.Sprintf("cannot reach rank %d %v: %s", rank, n, lost.reason)
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
		return fmt.Sprintf("not linked to the nodes of its invitation within %v%s", linkTimeout, lack)
	}
	return fmt.Sprintf("its links to the nodes of the world were not confirmed within %v%s", confirmTimeout, lack)
}
