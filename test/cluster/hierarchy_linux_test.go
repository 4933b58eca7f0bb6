package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// crowd starts a seed and two hosts with two workers each, with alternating ranks. Vars returns
// further variables of a rank.
func crowd(t *testing.T, vars func(rank int) []string) *cluster {
	t.Helper()
	const ranks = 4
	c := &cluster{network: newNetwork(t, 2, ipv4), crew: newCrew(t)}
	c.seed = c.crew.hire(c.hosts[0], "seed")
	ok(t, []report{c.seed.do(order{Do: "seed", N: ranks, Addr: ":" + seedPort})})
	for rank := range ranks {
		env := []string{
			"NEXAR_SEEDS=" + c.hosts[0].at(seedPort), fmt.Sprint("NEXAR_LISTEN=:", 8000+rank), fmt.Sprint("NEXAR_RANK=", rank),
		}
		c.team = append(c.team, c.crew.hire(c.hosts[rank%len(c.hosts)], fmt.Sprint("rank ", rank), append(env, vars(rank)...)...))
	}
	return c
}

// Two ranks on each of two hosts make every collective, as they choose and by
// every algorithm that knows hosts.
func TestCrowdedHosts(t *testing.T) {
	t.Parallel()
	for name, algorithms := range map[string]string{
		"as they choose": "",
		"leaders":        "barrier=hosts-leader,broadcast=hosts-leader,reduce=hosts-leader,all_reduce=hosts-leader,all_gather=hosts-leader,reduce_scatter=hosts-leader",
		"slices":         "broadcast=hosts-chain/4,reduce=hosts-chain/4,all_reduce=hosts-ring/4,all_gather=hosts-ring,reduce_scatter=hosts-ring",
		"trees":          "broadcast=hosts-binomial,reduce=hosts-binomial,all_reduce=hosts-rabenseifner,all_gather=hosts-circulant,reduce_scatter=hosts-rabenseifner",
	} {
		t.Run(name, func(t *testing.T) {
			crowd(t, func(int) []string { return []string{"NEXAR_ALGORITHMS=" + algorithms} }).join()
		})
	}
}

// For a long vector they choose an algorithm that knows hosts: a rank that was
// told otherwise is told which.
func TestCrowdedHostsChooseHierarchy(t *testing.T) {
	t.Parallel()
	c := crowd(t, func(rank int) []string {
		if rank == 3 {
			return []string{"NEXAR_ALGORITHMS=all_reduce=ring"}
		}
		return nil
	})
	ok(t, all(c.team, order{Do: "join"}))
	for rank, r := range all(c.team, order{Do: "loop", What: "all_reduce", N: 1 << 18, Sets: 1}) {
		if r.Failure == nil || !strings.Contains(r.Failure.Text, "by hosts-") {
			t.Errorf("rank %d: %v, want a mismatch with an algorithm that knows hosts", rank, r.Failure)
		}
	}
}
