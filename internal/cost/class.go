package cost

import (
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// NetworkOf returns the model of a path class. It reports false for a class without a model.
func NetworkOf(c transport.Class) (n Network, ok bool) {
	switch c {
	case transport.ClassMemory:
		return Local(), true
	case transport.ClassTCP:
		return TCP(false), true
	case transport.ClassTLS:
		return TCP(true), true
	case transport.ClassQUIC:
		return QUIC(), true
	}
	return Network{}, false
}

// PathClasses are the slowest classes of the paths between ranks: of all paths, of
// those within a host, and of those between hosts. A class is ClassUnknown if there is
// no such path.
type PathClasses struct {
	All, Near, Far transport.Class
	unknown        bool // the class of some path has no model
}

// Add adds a path.
func (p *PathClasses) Add(c transport.Class, sameHost bool) {
	if _, ok := NetworkOf(c); !ok {
		p.unknown = true
		return
	}
	p.All = max(p.All, c)
	if sameHost {
		p.Near = max(p.Near, c)
	} else {
		p.Far = max(p.Far, c)
	}
}

// Ballot returns the contribution of a rank to the negotiation of the classes of all
// ranks (see CountClasses): three zeros if a class is unknown.
func (p *PathClasses) Ballot() (classes [3]transport.Class) {
	if p.unknown {
		return classes
	}
	return [...]transport.Class{p.All, p.Near, p.Far}
}

// CountClasses returns the classes of the paths of all ranks, given the largest contributions.
func CountClasses(ballot [3]transport.Class) PathClasses {
	return PathClasses{All: ballot[0], Near: ballot[1], Far: ballot[2]}
}

// Tuner returns a tuner for ranks on these hosts with these links between them, or nil
// if the classes are unknown. It is hierarchical if the ranks of each host share memory and all ranks are one
// hop apart.
func (p PathClasses) Tuner(h plan.Hosts, l Links, hops Hops) *Tuner {
	hierarchical := p.hierarchical(h) && hops == nil
	class := p.All
	if hierarchical {
		class = p.Far
	}
	n, ok := NetworkOf(class)
	switch {
	case !ok:
		return nil
	case hierarchical:
		return NewOnHosts(Pipes(), l.as(n), h)
	}
	t := New(l.as(n)).Over(hops)
	t.together = h.Count() < h.Size()
	return t
}

func (p PathClasses) hierarchical(h plan.Hosts) bool {
	_, known := NetworkOf(p.Far)
	return known && h.Crowded() && p.Near == transport.ClassMemory
}
