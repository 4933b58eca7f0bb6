package plan

// A hierarchy divides the ranks of every host into the same number of teams of
// neighbors, each with a head, for a plan that keeps most traffic within hosts. Each rank
// has its own hierarchy.
//
// The heads of a host share its vector: the head of team i has share i. Their number is
// that of the ranks of the smallest host, or one.
//
// Heads that each have a share are from Bayatpour, Chakraborty, Subramoni, Lu
// and Panda, "Scalable reduction collectives with data partitioning-based
// multi-leader design", SC 2017; Träff, "Decomposing collectives for exploiting
// multi-lane communication", arXiv:1910.13373, 2019, makes collectives of all
// kinds of those on hosts and across them. One head for each host is older:
// Karonis, de Supinski, Foster, Gropp, Lusk and Bresnahan, "Exploiting hierarchy
// in parallel computer networks to optimize collective operation performance",
// IPDPS 2000.
type hierarchy struct {
	Plan
	rank, host, number int       // this rank, its host, and its team there
	teams              [][][]int // ranks by host and number
	root               int       // -1 if there is none
}

// hierarchy returns the hierarchy of a rank, with at most the given number of teams on every
// host. Root is the head of its team.
func (h Hosts) hierarchy(rank, root, teams int) hierarchy {
	teams = min(teams, h.least())
	x := hierarchy{rank: rank, host: h.of[rank], root: root, teams: make([][][]int, h.Count())}
	for host, ranks := range h.ranks {
		x.teams[host] = make([][]int, teams)
		for i := range teams {
			team := ranks[i*len(ranks)/teams : (i+1)*len(ranks)/teams]
			x.teams[host][i] = team
			if host == x.host && team[0] <= rank {
				x.number = i
			}
		}
	}
	return x
}

// headOf returns the position of the head of a team.
func (x *hierarchy) headOf(team []int) int { return max(0, position(team, x.root)) }

// position returns the index of a rank in a list, or -1.
func position(list []int, rank int) int {
	for i, r := range list {
		if r == rank {
			return i
		}
	}
	return -1
}

// width returns the number of heads of a host.
func (x *hierarchy) width() int { return len(x.teams[0]) }

// team returns the team of this rank.
func (x *hierarchy) team() []int { return x.teams[x.host][x.number] }

// isHead reports whether this rank is the head of its team.
func (x *hierarchy) isHead() bool {
	team := x.team()
	return team[x.headOf(team)] == x.rank
}

// heads returns the heads of the teams of this rank's host.
func (x *hierarchy) heads() (ranks []int) {
	for _, team := range x.teams[x.host] {
		ranks = append(ranks, team[x.headOf(team)])
	}
	return ranks
}

// column returns the heads of this rank's share on all hosts.
func (x *hierarchy) column() (ranks []int) {
	for _, teams := range x.teams {
		team := teams[x.number]
		ranks = append(ranks, team[x.headOf(team)])
	}
	return ranks
}

// rootAt returns the host and the number of the team of root.
func (x *hierarchy) rootAt() (host, number int) {
	for host, teams := range x.teams {
		for number, team := range teams {
			if position(team, x.root) >= 0 {
				return host, number
			}
		}
	}
	return 0, 0
}

// inTeam makes the ranks of this rank's team execute a part, rooted at their head. It reports
// false if the team is a single rank, which has nothing to do.
func (x *hierarchy) inTeam(f inner, at sites) bool {
	team := x.team()
	return x.within(team, x.headOf(team), f, at)
}

// onHost makes the heads of this rank's host execute a part.
func (x *hierarchy) onHost(root int, f inner, at sites) bool {
	return x.isHead() && x.within(x.heads(), root, f, at)
}

// inColumn makes the heads of this rank's share execute a part.
func (x *hierarchy) inColumn(root int, f inner, at sites) bool {
	return x.isHead() && x.within(x.column(), root, f, at)
}

func (x *hierarchy) within(ranks []int, root int, f inner, at sites) bool {
	if len(ranks) == 1 {
		return false
	}
	x.embed(f(position(ranks, x.rank), len(ranks), root), part{ranks, at})
	return true
}

// share returns the chunks of this rank's share.
func (x *hierarchy) share() (lo, hi int) {
	each := x.Chunks / x.width()
	return x.number * each, (x.number + 1) * each
}
