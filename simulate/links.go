package simulate

import (
	"errors"
	"fmt"
)

// A shape is the kind of a network between hosts.
type shape uint8

// The zero shape is a network with contention only at the links of the hosts.
const (
	// fatTree has leaf switches, and a spine that is never busy.
	fatTree shape = iota + 1
	// torus connects each host to two neighbors in each dimension.
	torus
)

// A topology is a network between hosts. All links have the same rate in both directions.
type topology struct {
	shape shape

	// hostsPerLeaf is the number of hosts at each leaf switch of a fat tree, and oversubscription
	// that number divided by the number of links from the switch to the spine.
	hostsPerLeaf     int
	oversubscription float64

	// dimensions are the numbers of hosts in each dimension of a torus. The last dimension has
	// neighboring hosts.
	dimensions []int
}

// check returns an error unless the network can connect so many hosts.
func (t topology) check(hosts int) error {
	if t.shape != torus {
		return nil
	}
	n := 1
	for _, d := range t.dimensions {
		if n > 1<<30/d {
			return errors.New("the number of hosts must be below 2^30")
		}
		n *= d
	}
	if n != hosts {
		return fmt.Errorf("it has %d hosts, the ranks are on %d: their numbers must be the same", n, hosts)
	}
	return nil
}

// links returns the number of links between hosts.
func (t topology) links(hosts int) int {
	switch t.shape {
	case fatTree:
		return 2*hosts + 2*t.uplinks()*((hosts+t.hostsPerLeaf-1)/t.hostsPerLeaf)
	case torus:
		return 2 * len(t.dimensions) * hosts
	}
	return 2 * hosts
}

// uplinks returns the number of links from a leaf switch to the spine.
func (t topology) uplinks() int {
	return max(1, int(float64(t.hostsPerLeaf)/t.oversubscription+0.5))
}

// path appends the links from one host to another.
//
// In a fat tree the destination selects the link to the spine and the link from it, so that all
// messages to a host use the same: Zahavi, Johnson, Kerbyson and Lang, "Optimized InfiniBand
// fat-tree routing for shift all-to-all communication patterns", CCPE 22(2), 2010. In a torus
// messages go along one dimension after the other, in the shorter direction: Dally and Seitz,
// "Deadlock-free message routing in multiprocessor interconnection networks", IEEE TC 36(5), 1987.
func (t topology) path(links []int32, hosts, from, to int) []int32 {
	switch t.shape {
	case fatTree:
		leaf, other := from/t.hostsPerLeaf, to/t.hostsPerLeaf
		links = append(links, int32(2*from))
		if leaf != other {
			up := t.uplinks()
			links = append(links, int32(2*(hosts+leaf*up+to%up)), int32(2*(hosts+other*up+to%up)+1))
		}
		return append(links, int32(2*to+1))
	case torus:
		return t.torusPath(links, from, to)
	}
	return append(links, int32(2*from), int32(2*to+1))
}

func (t topology) torusPath(links []int32, from, to int) []int32 {
	stride, at := 1, from
	for d := len(t.dimensions) - 1; d >= 0; d-- {
		n := t.dimensions[d]
		x, want := from/stride%n, to/stride%n
		step, direction := 1, 0
		if 2*((want-x+n)%n) > n {
			step, direction = -1, 1
		}
		for x != want {
			links = append(links, int32(2*(at*len(t.dimensions)+d)+direction))
			next := (x + step + n) % n
			at += (next - x) * stride
			x = next
		}
		stride *= n
	}
	return links
}

// link returns the name of a link.
func (t topology) link(l, hosts int) string {
	direction := [...]string{"from", "to"}[l%2]
	switch {
	case t.shape == torus:
		d := len(t.dimensions)
		return fmt.Sprintf("host %d, direction %c of dimension %d", l/2/d, "+-"[l%2], l/2%d)
	case l/2 < hosts:
		return fmt.Sprintf("%s host %d", direction, l/2)
	}
	up := t.uplinks()
	return fmt.Sprintf("%s leaf %d by link %d", direction, (l/2-hosts)/up, (l/2-hosts)%up)
}
