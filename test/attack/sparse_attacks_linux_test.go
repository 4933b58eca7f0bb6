package attack

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testhost"
)

// sparseAttacks are attacks on worlds of sparse topologies.
func sparseAttacks() []attack {
	checks := "of two living ranks between which packets are dropped or refused for a while, at most one is removed, and the others go on"
	var list []attack
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		list = append(list, attack{
			"cuts, " + topology, checks, 45 * time.Second, topology == "k-regular:4",
			func(t *testing.T, rng *rand.Rand) { attackCuts(t, rng, topology) },
		})
	}
	return list
}

// sparseHosts is the number of hosts of a sparse world, each with a rank.
const sparseHosts = 6

// attackCuts cuts random pairs of living ranks, neighbors or not, one pair after the other: for less or for longer than the
// heartbeat timeout, in one direction or both, with packets that are dropped or refused.
func attackCuts(t *testing.T, rng *rand.Rand, topology string) {
	n := testhost.New(t, sparseHosts, testhost.IPv4)
	w := newWorld(t, rng, networkTransports(rng), "NEXAR_TOPOLOGY="+topology)
	w.startOnHosts(n, arguments{})
	for range 3 {
		var ends []int // Host 0 has the seed.
		for i := 1; i < sparseHosts; i++ {
			if !w.ranks[i].isVictim() {
				ends = append(ends, i)
			}
		}
		rng.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
		a, b := ends[0], ends[1]
		both, long := rng.IntN(2) == 0, rng.IntN(2) == 0
		rule := []string{"drop", "meta l4proto tcp reject with tcp reset", "reject"}[rng.IntN(3)]
		cut := func(at, from int) {
			setRules(t, n.Hosts[at], fmt.Sprintf("table inet attack {\nchain in {\ntype filter hook input priority 0\nip saddr %v %s\n}\n}\n", n.Hosts[from].V4, rule))
		}
		took := time.Duration(100+rng.IntN(1500)) * time.Millisecond
		if long {
			took = heartbeatTimeout + time.Second
		}
		t.Logf("cut between ranks %d and %d for %v, both ways: %t, rule %q", a, b, took, both, rule)
		// The ends are suspects before the cut: their errors may come at once.
		w.ranks[a].markSuspect()
		w.ranks[b].markSuspect()
		cut(a, b)
		if both {
			cut(b, a)
		}
		time.Sleep(took)
		setRules(t, n.Hosts[a], "")
		setRules(t, n.Hosts[b], "")
		w.settleLink(w.ranks[a], w.ranks[b])
		w.waitForSteps(5)
	}
	w.finish()
}
