package cost

import (
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// TestClassesGetSlower: each class has a slower network than the previous one, for short and
// for long messages.
func TestClassesGetSlower(t *testing.T) {
	for _, c := range []transport.Class{transport.ClassUnknown, transport.ClassQUIC + 1} {
		if n, ok := NetworkOf(c); ok {
			t.Errorf("class %d has network %+v, want none", c, n)
		}
	}
	last := Network{}
	for c := transport.ClassMemory; c <= transport.ClassQUIC; c++ {
		n, ok := NetworkOf(c)
		if !ok || n.Latency <= last.Latency || n.Bulk <= last.Bulk || n.Eager != eager {
			t.Errorf("class %d: network %+v, after %+v", c, n, last)
		}
		last = n
	}
}

// TestSlowestClassCounts: ranks choose by the slowest class of all paths, and hierarchical
// plans only if all ranks of each host share memory.
func TestSlowestClassCounts(t *testing.T) {
	type path struct {
		class transport.Class
		same  bool
	}
	shm, tcp, quic := path{transport.ClassMemory, true}, path{transport.ClassTCP, false}, path{transport.ClassQUIC, false}
	near := path{transport.ClassTLS, true}
	crowded, apart := alike(true, 2, 2), alike(true, 4, 1)
	for name, test := range map[string]struct {
		hosts        plan.Hosts
		ranks        [][]path
		hierarchical bool
		net          Network // of a tuner that is not hierarchical
	}{
		"memory on hosts":  {crowded, [][]path{{shm, tcp, tcp}, {shm, tcp, quic}}, true, Network{}},
		"TCP on one host":  {crowded, [][]path{{shm, tcp, tcp}, {near, tcp, tcp}}, false, TCP(true)},
		"one rank on each": {apart, [][]path{{tcp, tcp, quic}, {tcp, tcp, tcp}}, false, QUIC()},
		"all ranks on one": {alike(true, 1, 4), [][]path{{shm, shm, shm}}, false, Local()},
	} {
		var ballot [3]transport.Class
		for _, list := range test.ranks {
			var p PathClasses
			for _, to := range list {
				p.Add(to.class, to.same)
			}
			for i, vote := range p.Ballot() {
				ballot[i] = max(ballot[i], vote)
			}
		}
		tuner := CountClasses(ballot).Tuner(test.hosts, Links{}, nil)
		if got := tuner.hosts.Size() > 0; got != test.hierarchical || !got && tuner.net != test.net {
			t.Errorf("%s: hierarchical %v, network %+v; want %v, %+v", name, got, tuner.net, test.hierarchical, test.net)
		}
	}
	for _, unknown := range []transport.Class{transport.ClassUnknown, transport.ClassQUIC + 1} {
		var p PathClasses
		p.Add(transport.ClassTCP, false)
		p.Add(unknown, false)
		if got := p.Ballot(); got != [3]transport.Class{} || CountClasses(got).Tuner(crowded, Links{}, nil) != nil {
			t.Errorf("ballot %v with class %d, want zeros", got, unknown)
		}
	}
}

// TestAlgorithmsForRanksApart: an algorithm with more messages in fewer rounds is chosen only if every
// rank has a host of its own.
func TestAlgorithmsForRanksApart(t *testing.T) {
	const size = 64
	var p PathClasses
	p.Add(transport.ClassQUIC, false)
	short := Need{Collective: plan.AllReduce, Size: size, Bytes: 8}
	apart := p.Tuner(alike(true, size, 1), Links{}, nil).Choose(short)
	if !apart.Algorithm.Apart {
		t.Errorf("ranks apart choose %s", apart.Algorithm.Name)
	}
	p.Add(transport.ClassQUIC, true)
	for name, h := range map[string]plan.Hosts{"one host": alike(true, 1, size), "hosts of two": alike(true, size/2, 2)} {
		tuner := p.Tuner(h, Links{}, nil)
		if got := tuner.Choose(short); got.Algorithm.Apart {
			t.Errorf("ranks on %s choose %s", name, got.Algorithm.Name)
		}
		if _, ok := tuner.ChoiceWith(short, apart.Index, 1); !ok {
			t.Errorf("ranks on %s cannot choose %s by a setting", name, apart.Algorithm.Name)
		}
	}
}
