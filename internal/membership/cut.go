package membership

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// patience is the time for the end of one of two nodes that have lost each other to
	// be noticed, or for both to answer.
	patience = 200 * time.Millisecond
	// cutPatience takes the place of patience if both nodes have answered and nothing but a
	// tie decides between them. One cut of a network is reported over a heartbeat interval,
	// and the fewest nodes go only if all of it is known.
	cutPatience = time.Second
	// probation is how long a node counts as one that has only just entered, at least. It is
	// longer than other nodes wait for the links of a newcomer before they report it.
	probation = 15 * time.Second
)

// A lostPair is two nodes, by rank, that have lost each other, or one of them the other.
type lostPair struct {
	ends  [2]int // the lower rank first
	known bool   // both nodes have answered, or had time to
	due   bool   // a removal is due
	tied  bool   // it is due although both have answered
}

// cut returns the nodes that have to go, besides those that are gone, so that all
// others are linked to each other, and the reasons: for each group of nodes with lost
// links that is due, the removals that cost the least (see costs).
func (c *Arbiter) cut(now time.Time) map[NodeID]string {
	out := make(map[NodeID]string)
	pairs := c.lostPairs(now)
	if !slices.ContainsFunc(pairs, func(p lostPair) bool { return p.due }) {
		return out
	}
	costs := c.costs(now, pairs)
	known := slices.DeleteFunc(slices.Clone(pairs), func(p lostPair) bool { return !p.known })
	removed := removals(costs, known)
	tied := tiedGroups(c.view.Size(), known)
	for _, p := range known {
		// As long as no tie is due, other losses in the group may still be on their way.
		if !p.due && !tied[p.ends[0]] {
			continue
		}
		for i, rank := range p.ends {
			other := p.ends[1-i]
			if !removed[rank] || !tied[rank] && removed[other] && costs[other].less(costs[rank]) {
				continue // The other one goes, which is enough for this pair.
			}
			id := c.view.Nodes[rank].ID
			out[id] = c.why(id)
		}
	}
	return out
}

// removals returns, by rank, which nodes go so that none of the pairs stays. A node that
// has not answered goes if it is lost for one that has: no other node is to go so that
// it can stay.
func removals(costs []cost, pairs []lostPair) []bool {
	removed := make([]bool, len(costs))
	for _, p := range pairs {
		for i, rank := range p.ends {
			if costs[rank][silentClass] > costs[p.ends[1-i]][silentClass] {
				removed[rank] = true
			}
		}
	}
	var edges [][2]int
	for _, p := range pairs {
		if !removed[p.ends[0]] && !removed[p.ends[1]] {
			edges = append(edges, p.ends)
		}
	}
	for _, rank := range cheapestRemovals(costs, edges) {
		removed[rank] = true
	}
	return removed
}

// tiedGroups returns, by rank, whether each of n nodes is in a connected group of pairs with
// a pair that is due as a tie.
func tiedGroups(n int, pairs []lostPair) []bool {
	var edges [][2]int
	tied := make([]bool, n)
	for _, p := range pairs {
		edges = append(edges, p.ends)
		if p.tied {
			tied[p.ends[0]] = true
		}
	}
	for _, group := range components(n, edges) {
		if slices.ContainsFunc(group, func(rank int) bool { return tied[rank] }) {
			for _, rank := range group {
				tied[rank] = true
			}
		}
	}
	return tied
}

// lostPairs returns the pairs that have lost each other, in the order of their ranks, but
// for those with a node that is gone.
func (c *Arbiter) lostPairs(now time.Time) (pairs []lostPair) {
	ranks := c.ranks()
	found := make(map[[2]int]lostPair)
	for link, l := range c.lost {
		if c.isGone(link) {
			continue
		}
		a, b := ranks[link[0]], ranks[link[1]]
		p := found[[2]int{min(a, b), max(a, b)}]
		p.ends = [2]int{min(a, b), max(a, b)}
		due, tie := !now.Before(c.matures(link, l)), c.isTied(link, l)
		p.known = p.known || due || tie
		p.due = p.due || due
		p.tied = p.tied || due && tie
		found[p.ends] = p
	}
	return slices.SortedFunc(maps.Values(found), func(p, q lostPair) int { return slices.Compare(p.ends[:], q.ends[:]) })
}

// ranks returns the rank of each node of the view.
func (c *Arbiter) ranks() map[NodeID]int {
	ranks := make(map[NodeID]int, c.view.Size())
	for rank, n := range c.view.Nodes {
		ranks[n.ID] = rank
	}
	return ranks
}

// matures returns when a decision about a lost link is due, if nothing else is heard.
func (c *Arbiter) matures(link [2]NodeID, l loss) time.Time {
	if c.isTied(link, l) {
		return l.at.Add(cutPatience)
	}
	return l.at.Add(patience)
}

// isTied reports whether both nodes of a lost link have answered since the loss, and
// are of the same class.
func (c *Arbiter) isTied(link [2]NodeID, l loss) bool {
	return c.bothAnswered(link, l) && c.isProven(link[0]) == c.isProven(link[1])
}

func (c *Arbiter) bothAnswered(link [2]NodeID, l loss) bool {
	return !c.alive[link[0]].Before(l.at) && !c.alive[link[1]].Before(l.at)
}

// isProven reports whether a node has been in the world for longer than probation and has
// not made an accusation that nothing confirmed.
func (c *Arbiter) isProven(id NodeID) bool {
	_, fresh := c.fresh[id]
	return !fresh && c.strikes[id] == 0
}

// The classes of nodes are the first components of a cost.
const (
	provenClass = iota // has answered, and isProven
	doubtClass         // has answered, and not isProven
	silentClass        // has not answered
)

// costs returns the costs of removing the nodes, by rank. Their components count, in this
// order: nodes that have answered and are proven; nodes that have answered and have only
// just entered, or have accused others without confirmation; nodes that have not answered.
// Of sets of equal size that one is the cheapest with accusers that have made more
// unconfirmed accusations before; with more losses that are not known yet; with the
// accused rather than the accusers; with the higher ranks.
//
// Each component is counted down from the largest value, so that none is negative. That
// changes nothing between sets of as many nodes.
func (c *Arbiter) costs(now time.Time, pairs []lostPair) []cost {
	n := c.view.Size()
	strikes, young, accused := make([]int, n), make([]int, n), make([]int, n)
	for _, p := range pairs {
		for i, rank := range p.ends {
			if !p.known {
				young[rank]++
			}
			id, other := c.view.Nodes[rank].ID, p.ends[1-i]
			if _, accuses := c.lost[[2]NodeID{id, c.view.Nodes[other].ID}]; accuses {
				accused[rank]--
				accused[other]++
				strikes[rank] = c.strikes[id]
			}
		}
	}
	mostStrikes, mostYoung, mostAccused := slices.Max(strikes), slices.Max(young), slices.Max(accused)
	silent := c.silent(now)
	costs := make([]cost, n)
	for rank, node := range c.view.Nodes {
		class := provenClass
		switch {
		case silent[node.ID]:
			class = silentClass
		case !c.isProven(node.ID):
			class = doubtClass
		}
		costs[rank][class] = 1
		costs[rank][3] = mostStrikes - strikes[rank]
		costs[rank][4] = mostYoung - young[rank]
		costs[rank][5] = mostAccused - accused[rank]
		costs[rank][6] = n - rank
	}
	return costs
}

// silent returns the nodes that have answered nothing that they were asked since one of
// their links was lost that has waited long enough.
func (c *Arbiter) silent(now time.Time) map[NodeID]bool {
	out := make(map[NodeID]bool)
	for link, l := range c.lost {
		for _, id := range link {
			if !now.Before(l.at.Add(patience)) && c.alive[id].Before(l.at) {
				out[id] = true
			}
		}
	}
	return out
}

// why returns the reason for the removal of a node: the report of the first of the others,
// by rank, that has lost it, or else its own report.
func (c *Arbiter) why(id NodeID) string {
	for rank, n := range c.view.Nodes {
		link := [2]NodeID{n.ID, id}
		if l, ok := c.lost[link]; ok && !c.isGone(link) {
			return fmt.Sprintf("rank %d has lost it: %s", rank, l.reason)
		}
	}
	for rank, n := range c.view.Nodes {
		link := [2]NodeID{id, n.ID}
		if l, ok := c.lost[link]; ok && !c.isGone(link) {
			return fmt.Sprintf("it has lost rank %d: %s", rank, l.reason)
		}
	}
	return ""
}

// strike counts, before the next view is adopted, which nodes have had another one removed
// by an accusation that nothing confirms: the accused had answered, has lost no link with a
// third node, and was linked to the accuser before. From then on ties are decided against the accuser, also with nodes
// that have only just entered, so that one that lies has one other removed at most.
func (c *Arbiter) strike(next View) {
	for link, l := range c.lost {
		by, to := link[0], link[1]
		_, stays := next.Rank(by)
		_, kept := next.Rank(to)
		if stays && !kept && !c.isGone(link) && c.bothAnswered(link, l) && !c.hasOtherLoss(to, by) && c.hadLink(by, to) {
			c.strikes[by]++
		}
	}
}

// hadLink reports whether a node ever said that it had a link to another: only nodes that
// have entered lately may have been let in without it.
func (c *Arbiter) hadLink(by, to NodeID) bool {
	n, fresh := c.fresh[to]
	_, linked := n.links[by]
	return !fresh || linked
}

// hasOtherLoss reports whether a node has lost a link, whichever end says so, with
// another node than the given one.
func (c *Arbiter) hasOtherLoss(id, but NodeID) bool {
	for link := range c.lost {
		if link[0] == id && link[1] != but || link[1] == id && link[0] != but {
			return true
		}
	}
	return false
}
