package cost

import (
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// TestWaysGetSlower: of two networks that ranks are reached by, the one that
// comes later is slower at short messages and at long ones.
func TestWaysGetSlower(t *testing.T) {
	if _, ok := Unknown.Network(); ok {
		t.Error("the unknown is known")
	}
	if _, ok := ways.Network(); ok {
		t.Error("there is a way that there is not")
	}
	last := Network{}
	for w := Memory; w < ways; w++ {
		n, ok := w.Network()
		if !ok || n.Latency <= last.Latency || n.Bulk <= last.Bulk || n.Eager != eager {
			t.Errorf("way %d: %+v, after %+v", w, n, last)
		}
		last = n
	}
}

// TestWaysOfAllRanks: ranks choose by the slowest way that any of them has, and
// with regard to hosts only if all ranks of each share memory.
func TestWaysOfAllRanks(t *testing.T) {
	type way struct {
		class transport.Class
		same  bool
	}
	shm, tcp, quic := way{transport.ClassMemory, true}, way{transport.ClassTCP, false}, way{transport.ClassQUIC, false}
	near := way{transport.ClassTLS, true}
	crowded, apart := alike(true, 2, 2), alike(true, 4, 1)
	for name, test := range map[string]struct {
		hosts   plan.Hosts
		ranks   [][]way
		onHosts bool
		net     Network // of all, where hosts do not count
	}{
		"memory on hosts":       {crowded, [][]way{{shm, tcp, tcp}, {shm, tcp, quic}}, true, Network{}},
		"TCP on one host":       {crowded, [][]way{{shm, tcp, tcp}, {near, tcp, tcp}}, false, TCP(true)},
		"every rank on its own": {apart, [][]way{{tcp, tcp, quic}, {tcp, tcp, tcp}}, false, QUIC()},
		"all share memory":      {alike(true, 1, 4), [][]way{{shm, shm, shm}}, false, Local()},
	} {
		ballot := make([]uint8, 4)
		for _, list := range test.ranks {
			var w Ways
			for _, to := range list {
				w.Add(WayOf(to.class), to.same)
			}
			for i, vote := range w.Ballot() {
				ballot[i] = max(ballot[i], vote)
			}
		}
		tuner := CountWays(ballot).Tuner(test.hosts, Links{})
		if onHosts := tuner.hosts.Size() > 0; onHosts != test.onHosts || !onHosts && tuner.net != test.net {
			t.Errorf("%s: with regard to hosts: %v, network %+v", name, onHosts, tuner.net)
		}
	}
	var w Ways
	w.Add(WayOf(transport.ClassTCP), false)
	w.Add(WayOf(transport.ClassUnknown), false)
	if got := w.Ballot(); slices.Max(got) > 0 || CountWays(got).Tuner(crowded, Links{}) != nil {
		t.Errorf("a way that is not known: %v", got)
	}
}
