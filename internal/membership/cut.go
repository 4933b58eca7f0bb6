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
	// cutPatience replaces patience if both nodes have answered and only a tie decides. A
	// network partition is reported over a heartbeat interval, and the smallest set of removals
	// is known only after all reports. It also replaces patience for an exclusion: the link of its nodes works, and a late answer is
	// no sign of an end. A candidate may lack a node for as long that the world has not lost.
	cutPatience = 5 * patience
	// probation is the minimum time that a node counts as a newcomer. It exceeds the time after
	// which other nodes report the missing links of a newcomer.
	probation = 3 * confirmTimeout
)

// A lostPair is a pair of nodes, by rank. At least one of them has lost the other.
type lostPair struct {
	ends  [2]int // the lower rank first
	known bool   // both nodes have answered, or had the time to
	due   bool   // a removal is due
	tied  bool   // it is due although both have answered
}

// cut returns the nodes to remove, besides those that are gone, so that all others are
// linked to each other, with the reasons. For each group of nodes with lost links that
// is due, these are the cheapest removals (see costs).
func (a *Arbiter) cut(now time.Time) map[NodeID]string {
	out := make(map[NodeID]string)
	pairs := a.lostPairs(now)
	if !slices.ContainsFunc(pairs, func(p lostPair) bool { return p.due }) {
		return out
	}
	costs := a.costs(now, pairs)
	known := slices.DeleteFunc(slices.Clone(pairs), func(p lostPair) bool { return !p.known })
	removed := removals(costs, known)
	tied := tiedGroups(a.view.Size(), known)
	for _, p := range known {
		// Before a tie is due, more reports of losses in the group may arrive.
		if !p.due && !tied[p.ends[0]] {
			continue
		}
		for i, rank := range p.ends {
			other := p.ends[1-i]
			if !removed[rank] || !tied[rank] && removed[other] && costs[other].less(costs[rank]) {
				continue // The other node is removed, which is enough for this pair.
			}
			id := a.view.Nodes[rank].ID
			out[id] = a.why(id)
		}
	}
	return out
}

// removals returns, by rank, the nodes to remove so that no pair stays. A node that has not
// answered is removed if a node that has answered has lost it. No other node is removed on its
// account.
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

// tiedGroups returns, by rank, whether each of n nodes is in a connected group of pairs
// with a pair that is due as a tie.
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

// lostPairs returns the lost pairs in the order of their ranks, except pairs with a node that
// is gone.
func (a *Arbiter) lostPairs(now time.Time) (pairs []lostPair) {
	ranks := a.ranks()
	found := make(map[[2]int]lostPair)
	for link, l := range a.lost {
		if a.isGone(link) {
			continue
		}
		by, to := ranks[link[0]], ranks[link[1]]
		p := found[[2]int{min(by, to), max(by, to)}]
		p.ends = [2]int{min(by, to), max(by, to)}
		due, tie := !now.Before(a.matures(link, l)), a.isTied(link, l)
		p.known = p.known || due || tie
		p.due = p.due || due
		p.tied = p.tied || due && tie
		found[p.ends] = p
	}
	return slices.SortedFunc(maps.Values(found), func(p, q lostPair) int { return slices.Compare(p.ends[:], q.ends[:]) })
}

// ranks returns the rank of each node of the view.
func (a *Arbiter) ranks() map[NodeID]int {
	ranks := make(map[NodeID]int, a.view.Size())
	for rank, n := range a.view.Nodes {
		ranks[n.ID] = rank
	}
	return ranks
}

// matures returns when a decision about a lost link is due without further news.
func (a *Arbiter) matures(link [2]NodeID, l loss) time.Time {
	if a.isTied(link, l) {
		return l.at.Add(cutPatience)
	}
	return a.silentFrom(l)
}

// silentFrom returns when the nodes of a lost link count as silent, unless they have answered since the loss.
func (a *Arbiter) silentFrom(l loss) time.Time {
	at := l.at.Add(patience)
	if l.excluded {
		at = l.at.Add(cutPatience)
	}
	return lastOf(at, a.grace)
}

// isTied reports whether both nodes of a lost link have answered since the loss, and
// are of the same class.
func (a *Arbiter) isTied(link [2]NodeID, l loss) bool {
	return a.bothAnswered(link, l) && a.isProven(link[0]) == a.isProven(link[1])
}

func (a *Arbiter) bothAnswered(link [2]NodeID, l loss) bool {
	return !a.alive[link[0]].Before(l.at) && !a.alive[link[1]].Before(l.at)
}

// isProven reports whether a node is past probation and has no strikes.
func (a *Arbiter) isProven(id NodeID) bool {
	_, fresh := a.newcomers[id]
	return !fresh && a.strikes[id] == 0
}

// The classes of nodes, which are the first components of a cost.
const (
	provenClass = iota // has answered, and isProven
	doubtClass         // has answered, and not isProven
	silentClass        // has not answered
)

// costs returns the costs of removing the nodes, by rank. The components are, in this order:
// nodes that have answered and are proven; nodes that have answered and are newcomers or have
// strikes; nodes that have not answered. Among sets of equal size the cheapest one has the
// accusers with the most strikes; then the most losses that are not known yet; then the accused
// rather than the accusers; then the higher ranks.
//
// Each component is counted down from the largest value, so that none is negative. The order of
// sets of equal size stays the same.
func (a *Arbiter) costs(now time.Time, pairs []lostPair) []cost {
	n := a.view.Size()
	strikes, young, accused := make([]int, n), make([]int, n), make([]int, n)
	for _, p := range pairs {
		for i, rank := range p.ends {
			if !p.known {
				young[rank]++
			}
			id, other := a.view.Nodes[rank].ID, p.ends[1-i]
			if _, accuses := a.lost[[2]NodeID{id, a.view.Nodes[other].ID}]; accuses {
				accused[rank]--
				accused[other]++
				strikes[rank] = a.strikes[id]
			}
		}
	}
	mostStrikes, mostYoung, mostAccused := slices.Max(strikes), slices.Max(young), slices.Max(accused)
	silent := a.silent(now)
	costs := make([]cost, n)
	for rank, node := range a.view.Nodes {
		class := provenClass
		switch {
		case silent[node.ID]:
			class = silentClass
		case !a.isProven(node.ID):
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

// silent returns the nodes that have answered no question since the loss of one of
// their links, after silentFrom.
func (a *Arbiter) silent(now time.Time) map[NodeID]bool {
	out := make(map[NodeID]bool)
	for link, l := range a.lost {
		for _, id := range link {
			if !now.Before(a.silentFrom(l)) && a.alive[id].Before(l.at) {
				out[id] = true
			}
		}
	}
	return out
}

// why returns the reason for the removal of a node: the report of the first node, by
// rank, that has lost it, or its own report.
func (a *Arbiter) why(id NodeID) string {
	for rank, n := range a.view.Nodes {
		link := [2]NodeID{n.ID, id}
		if l, ok := a.lost[link]; ok && !a.isGone(link) {
			return fmt.Sprintf("rank %d has lost it: %s", rank, l.reason)
		}
	}
	for rank, n := range a.view.Nodes {
		link := [2]NodeID{id, n.ID}
		switch l, ok := a.lost[link]; {
		case !ok || a.isGone(link):
		case l.excluded:
			return fmt.Sprintf("it has excluded rank %d, and its exclusions prevail only if all ranks that stay call Exclude with the same ranks", rank)
		default:
			return fmt.Sprintf("has lost rank %d: %s", rank, l.reason)
		}
	}
	return ""
}

// excluder returns the first rank that has excluded a node.
func (a *Arbiter) excluder(id NodeID) (rank int, ok bool) {
	for rank, n := range a.view.Nodes {
		if a.lost[[2]NodeID{n.ID, id}].excluded {
			return rank, true
		}
	}
	return 0, false
}

// strike counts, before the next view is adopted, the unconfirmed accusations that have removed
// a node: the accused had answered, has lost no link with a third node, and was linked to the
// accuser before. Later ties are decided against the accuser, even if the other node is a
// newcomer, so a lying node can have at most one other node removed.
func (a *Arbiter) strike(next View) {
	for link, l := range a.lost {
		by, to := link[0], link[1]
		_, stays := next.Rank(by)
		_, kept := next.Rank(to)
		if stays && !kept && !a.isGone(link) && a.bothAnswered(link, l) && !a.hasOtherLoss(to, by) && a.hadLink(by, to) {
			a.strikes[by]++
		}
	}
}

// hadLink reports whether a node ever had a link to another: only newcomers may have
// been admitted without it.
func (a *Arbiter) hadLink(by, to NodeID) bool {
	n, fresh := a.newcomers[to]
	_, linked := n.links[by]
	return !fresh || linked
}

// hasOtherLoss reports whether a link between a node and any node other than but is
// lost, by either end's report.
func (a *Arbiter) hasOtherLoss(id, but NodeID) bool {
	for link := range a.lost {
		if link[0] == id && link[1] != but || link[1] == id && link[0] != but {
			return true
		}
	}
	return false
}
