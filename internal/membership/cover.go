package membership

import (
	"math/bits"
	"slices"
)

// coverWork bounds the search in a graph with more than exactMax nodes, in words of bit sets
// read: some tenths of a second of CPU. Since no clock bounds it, the result depends on the
// graph alone.
const coverWork = 1 << 23

// exactMax is the largest number of nodes with a guarantee that the search completes.
const exactMax = 16

// A cost is the price of removing a node. Costs are added component by component and
// compared lexicographically.
type cost [7]int

func (c cost) plus(d cost) cost {
	for i := range c {
		c[i] += d[i]
	}
	return c
}

func (c cost) less(d cost) bool { return slices.Compare(c[:], d[:]) < 0 }

// cheapestRemovals returns the nodes of a minimum weighted vertex cover, in ascending
// order: if the edges are lost links, the other nodes are pairwise linked. The cover is
// exact if the search completes within coverWork, which is certain up to exactMax nodes
// with edges per connected component, and otherwise the best one found. No component of
// a cost may be negative.
func cheapestRemovals(costs []cost, edges [][2]int) (removed []int) {
	for _, nodes := range components(len(costs), edges) {
		c := newCover(nodes, costs, edges)
		c.search(0, cost{}, c.all())
		for i, in := range c.best {
			if in {
				removed = append(removed, nodes[i])
			}
		}
	}
	slices.Sort(removed)
	return removed
}

// components returns the connected components that have edges, each in ascending order.
func components(n int, edges [][2]int) (list [][]int) {
	parent := make([]int, n)
	for i := range parent {
		parent[i] = i
	}
	root := func(i int) int {
		for parent[i] != i {
			parent[i] = parent[parent[i]]
			i = parent[i]
		}
		return i
	}
	touched := make([]bool, n)
	for _, e := range edges {
		touched[e[0]], touched[e[1]] = true, true
		if a, b := root(e[0]), root(e[1]); a != b {
			parent[max(a, b)] = min(a, b)
		}
	}
	place := make(map[int]int)
	for i := range n {
		if !touched[i] {
			continue
		}
		r := root(i)
		if _, ok := place[r]; !ok {
			place[r] = len(list)
			list = append(list, nil)
		}
		list[place[r]] = append(list[place[r]], i)
	}
	return list
}

// A set is a bit set of nodes.
type set []uint64

func (s set) has(i int) bool { return s[i/64]>>(i%64)&1 != 0 }
func (s set) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s set) remove(i int)   { s[i/64] &^= 1 << (i % 64) }

// A cover is a search in one component: branch and bound on a node of the highest
// degree, which is removed or has all its neighbors removed.
type cover struct {
	costs     []cost
	near      []set // neighbors of each node
	work      int64 // remaining
	removed   []bool
	best      []bool // the cheapest cover so far, or nil
	bestCost  cost
	undecided []set // for each depth, reused
}

func newCover(nodes []int, costs []cost, edges [][2]int) *cover {
	c := &cover{work: coverWork, removed: make([]bool, len(nodes))}
	if len(nodes) <= exactMax {
		c.work = 1 << (2*exactMax + 4) // more than all branches take
	}
	index := make(map[int]int, len(nodes))
	for i, n := range nodes {
		index[n] = i
		c.costs = append(c.costs, costs[n])
		c.near = append(c.near, make(set, (len(nodes)+63)/64))
	}
	for _, e := range edges {
		a, ok := index[e[0]]
		if b := index[e[1]]; ok {
			c.near[a].add(b)
			c.near[b].add(a)
		}
	}
	return c
}

func (c *cover) all() set {
	s := c.set(0)
	for i := range c.costs {
		s.add(i)
	}
	return s
}

// set returns the set of a depth.
func (c *cover) set(depth int) set {
	for len(c.undecided) <= depth {
		c.undecided = append(c.undecided, make(set, (len(c.costs)+63)/64))
	}
	return c.undecided[depth]
}

// search decides the nodes of a set, given the cost of the removals so far. The first descent
// removes the node of the highest degree each time and always completes, so a solution exists
// however little work is left.
func (c *cover) search(depth int, sofar cost, open set) {
	var gone []int // nodes removed by reduce, restored on return
	defer func() {
		for _, i := range gone {
			c.removed[i] = false
		}
	}()
	remove := func(i int) {
		c.removed[i] = true
		open.remove(i)
		gone = append(gone, i)
		sofar = sofar.plus(c.costs[i])
	}
	worst := c.reduce(open, remove)
	if worst < 0 {
		if c.best == nil || sofar.less(c.bestCost) {
			c.best, c.bestCost = slices.Clone(c.removed), sofar
		}
		return
	}
	if c.best != nil && (c.work <= 0 || !sofar.plus(c.bound(open)).less(c.bestCost)) {
		return
	}
	next := c.set(depth + 1)
	copy(next, open)
	next.remove(worst)
	c.removed[worst] = true
	c.search(depth+1, sofar.plus(c.costs[worst]), next)
	c.removed[worst] = false
	if c.work <= 0 {
		return
	}
	copy(next, open)
	next.remove(worst)
	var around []int
	for w := range open {
		for rest := open[w] & c.near[worst][w]; rest != 0; rest &= rest - 1 {
			around = append(around, w*64+bits.TrailingZeros64(rest))
		}
	}
	for _, i := range around {
		c.removed[i] = true
		next.remove(i)
		sofar = sofar.plus(c.costs[i])
	}
	c.search(depth+1, sofar, next)
	for _, i := range around {
		c.removed[i] = false
	}
}

// reduce decides the nodes that need no search: a node without neighbors stays, and
// the only neighbor of a node is removed if it costs no more than that node. It
// returns the node with the most neighbors, the cheapest of these, or -1 if none is
// left.
func (c *cover) reduce(open set, remove func(i int)) (worst int) {
	for again := true; again; {
		again, worst = false, -1
		most := 0
		c.work -= int64(len(c.costs))
		for i := range c.costs {
			if !open.has(i) {
				continue
			}
			degree, only := c.degree(open, i)
			switch {
			case degree == 0:
				open.remove(i)
			case degree == 1 && !c.costs[i].less(c.costs[only]):
				remove(only)
				again = true
			case degree > most || degree == most && c.costs[i].less(c.costs[worst]):
				worst, most = i, degree
			}
		}
	}
	return worst
}

// degree returns the number of neighbors of a node in a set, and the last one.
func (c *cover) degree(open set, i int) (n, last int) {
	c.work -= int64(len(open))
	for w, x := range c.near[i] {
		if x &= open[w]; x != 0 {
			n += bits.OnesCount64(x)
			last = w*64 + 63 - bits.LeadingZeros64(x)
		}
	}
	return n, last
}

// bound returns a lower bound of the cost of the removals in a set: the cheaper ends of
// the edges of a matching.
func (c *cover) bound(open set) (least cost) {
	free := slices.Clone(open)
	c.work -= int64(len(c.costs))
	for i := range c.costs {
		if !free.has(i) {
			continue
		}
		c.work -= int64(len(open))
		for w, x := range c.near[i] {
			if x &= free[w]; x == 0 {
				continue
			}
			j := w*64 + bits.TrailingZeros64(x)
			free.remove(i)
			free.remove(j)
			cheaper := c.costs[i]
			if c.costs[j].less(cheaper) {
				cheaper = c.costs[j]
			}
			least = least.plus(cheaper)
			break
		}
	}
	return least
}
