package simulate

import (
	"fmt"
	"strings"
)

// A Shape is the kind of a network between hosts.
type Shape uint8

const (
	// Flat is a network with contention only at the links of the hosts.
	Flat Shape = iota
	// FatTree has leaf switches, and a spine that is never busy.
	FatTree
	// Torus connects each host to two neighbors in each dimension.
	Torus
)

// A Topology is a network between hosts. All links have the same rate in both directions.
type Topology struct {
	Shape Shape

	// HostsPerLeaf is the number of hosts at each leaf switch of a fat tree, and Oversubscription
	// that number divided by the number of links from the switch to the spine.
	HostsPerLeaf     int
	Oversubscription float64

	// Dimensions are the numbers of hosts in each dimension of a torus. The last dimension has
	// neighboring hosts.
	Dimensions []int
}

// String returns the topology in the form "fat-tree:32:4" or "torus:16x16x8".
func (t Topology) String() string {
	switch t.Shape {
	case FatTree:
		return fmt.Sprintf("fat-tree:%d:%g", t.HostsPerLeaf, t.Oversubscription)
	case Torus:
		return "torus:" + strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Dimensions), " ", "x"), "[]")
	}
	return "flat"
}

// check returns an error unless the network can connect so many hosts.
func (t Topology) check(hosts int) error {
	switch t.Shape {
	case Flat:
		return nil
	case FatTree:
		if t.HostsPerLeaf < 1 || t.Oversubscription < 1 || t.Oversubscription > float64(t.HostsPerLeaf) {
			return fmt.Errorf("topology %v: need at least one host at each leaf, and an oversubscription between 1 and that number", t)
		}
		return nil
	case Torus:
		n := 1
		for _, d := range t.Dimensions {
			if d < 1 || n > 1<<30/d {
				return fmt.Errorf("topology %v: each dimension must be at least 1, and the number of hosts below 2^30", t)
			}
			n *= d
		}
		if n != hosts || len(t.Dimensions) == 0 {
			return fmt.Errorf("topology %v: it has %d hosts, the ranks are on %d: their numbers must be the same", t, n, hosts)
		}
		return nil
	}
	return fmt.Errorf("unknown topology %d", t.Shape)
}

// links returns the number of links between hosts.
func (t Topology) links(hosts int) int {
	switch t.Shape {
	case FatTree:
		return 2*hosts + 2*t.uplinks()*((hosts+t.HostsPerLeaf-1)/t.HostsPerLeaf)
	case Torus:
		return 2 * len(t.Dimensions) * hosts
	}
	return 2 * hosts
}

// uplinks returns the number of links from a leaf switch to the spine.
func (t Topology) uplinks() int {
	return max(1, int(float64(t.HostsPerLeaf)/t.Oversubscription+0.5))
}

// path appends the links from one host to another.
//
// In a fat tree the destination selects the link to the spine and the link from it, so that all
// messages to a host use the same: Zahavi, Johnson, Kerbyson and Lang, "Optimized InfiniBand
// fat-tree routing for shift all-to-all communication patterns", CCPE 22(2), 2010. In a torus
// messages go along one dimension after the other, in the shorter direction: Dally and Seitz,
// "Deadlock-free message routing in multiprocessor interconnection networks", IEEE TC 36(5), 1987.
func (t Topology) path(links []int32, hosts, from, to int) []int32 {
	switch t.Shape {
	case FatTree:
		leaf, other := from/t.HostsPerLeaf, to/t.HostsPerLeaf
		links = append(links, int32(2*from))
		if leaf != other {
			up := t.uplinks()
			links = append(links, int32(2*(hosts+leaf*up+to%up)), int32(2*(hosts+other*up+to%up)+1))
		}
		return append(links, int32(2*to+1))
	case Torus:
		return t.torusPath(links, from, to)
	}
	return append(links, int32(2*from), int32(2*to+1))
}

func (t Topology) torusPath(links []int32, from, to int) []int32 {
	stride, at := 1, from
	for d := len(t.Dimensions) - 1; d >= 0; d-- {
		n := t.Dimensions[d]
		x, want := from/stride%n, to/stride%n
		step, direction := 1, 0
		if 2*((want-x+n)%n) > n {
			step, direction = -1, 1
		}
		for x != want {
			links = append(links, int32(2*(at*len(t.Dimensions)+d)+direction))
			next := (x + step + n) % n
			at += (next - x) * stride
			x = next
		}
		stride *= n
	}
	return links
}

// link returns the name of a link.
func (t Topology) link(l, hosts int) string {
	direction := [...]string{"from", "to"}[l%2]
	switch {
	case t.Shape == Torus:
		d := len(t.Dimensions)
		return fmt.Sprintf("host %d, direction %c of dimension %d", l/2/d, "+-"[l%2], l/2%d)
	case l/2 < hosts:
		return fmt.Sprintf("%s host %d", direction, l/2)
	}
	up := t.uplinks()
	return fmt.Sprintf("%s leaf %d by link %d", direction, (l/2-hosts)/up, (l/2-hosts)%up)
}
