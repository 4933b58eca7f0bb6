package cost

import (
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// A Way is how ranks reach each other. Later ones are slower.
type Way uint8

const (
	Unknown  Way = iota
	Memory       // of this process, or of this host
	PlainTCP     // and QUIC for what cannot wait
	TLS          // TCP with it, and QUIC
	QUICAlone
	ways
)

// Network is the Network of ranks that reach each other in this way, if it is
// known.
func (w Way) Network() (n Network, ok bool) {
	list := [ways]Network{Memory: Local(), PlainTCP: TCP(false), TLS: TCP(true), QUICAlone: QUIC()}
	if w == Unknown || w >= ways {
		return Network{}, false
	}
	return list[w], true
}

// WayOf is the Way of a link whose payloads a transport of this class carries.
func WayOf(c transport.Class) Way {
	switch c {
	case transport.ClassMemory:
		return Memory
	case transport.ClassTCP:
		return PlainTCP
	case transport.ClassTLS:
		return TLS
	case transport.ClassQUIC:
		return QUICAlone
	}
	return Unknown
}

// Ways are the slowest in which ranks reach each other: all of them, those of
// the same host, and those of different ones. They are Unknown where there is
// nobody.
type Ways struct {
	All, Near, Far Way
	unknown        bool // one of them is
}

// Add adds the way to a rank.
func (s *Ways) Add(w Way, sameHost bool) {
	s.unknown = s.unknown || w == Unknown
	s.All = max(s.All, w)
	if sameHost {
		s.Near = max(s.Near, w)
	} else {
		s.Far = max(s.Far, w)
	}
}

// Ballot is how a rank votes for its Ways. The largest of all votes, number by
// number, counts.
func (s *Ways) Ballot() []uint8 {
	if s.unknown {
		return make([]uint8, 3)
	}
	return []uint8{uint8(s.All), uint8(s.Near), uint8(s.Far)}
}

// CountWays are the Ways of all ranks, by the largest votes, with which a
// ballot begins.
func CountWays(ballot []uint8) Ways {
	return Ways{All: Way(ballot[0]), Near: Way(ballot[1]), Far: Way(ballot[2])}
}

// Tuner is one for ranks on such Hosts, with such Links between them, or nil if
// the Ways are not known. It takes hosts into account if all ranks of each
// share memory.
func (s Ways) Tuner(h plan.Hosts, l Links) *Tuner {
	net := s.slowest(h)
	switch {
	case net == Network{}:
		return nil
	case s.onHosts(h):
		return NewOnHosts(Pipes(), l.as(net), h)
	}
	return New(l.as(net))
}

// onHosts reports whether hosts are taken into account.
func (s Ways) onHosts(h plan.Hosts) bool {
	_, known := s.Far.Network()
	return known && h.Crowded() && s.Near == Memory
}

// slowest is the Network of all ranks, or of hosts where these are taken into
// account; the zero value if it is not known.
func (s Ways) slowest(h plan.Hosts) Network {
	way := s.All
	if s.onHosts(h) {
		way = s.Far
	}
	n, _ := way.Network()
	return n
}
