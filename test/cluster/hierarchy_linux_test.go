package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// newTwoHostCluster starts a seed and two workers on each of two hosts, with alternating ranks. vars
// returns further variables of a rank.
func newTwoHostCluster(t *testing.T, vars func(rank int) []string) *cluster {
	t.Helper()
	const ranks = 4
	c := &cluster{network: newNetwork(t, 2, ipv4), workers: newWorkerSet(t)}
	c.seed = c.workers.start(c.hosts[0], "seed")
	mustSucceed(t, []result{c.seed.do(command{Do: "seed", N: ranks, Addr: ":" + seedPort})})
	for rank := range ranks {
		env := []string{
			"NEXAR_SEEDS=" + c.hosts[0].at(seedPort), fmt.Sprint("NEXAR_LISTEN=:", 8000+rank), fmt.Sprint("NEXAR_RANK=", rank),
		}
		c.ranks = append(c.ranks, c.workers.start(c.hosts[rank%len(c.hosts)], fmt.Sprint("rank ", rank), append(env, vars(rank)...)...))
	}
	return c
}

// Two ranks on each of two hosts make every collective, with the selector's algorithm and with
// every hierarchical algorithm.
func TestHierarchy(t *testing.T) {
	t.Parallel()
	for name, algorithms := range map[string]string{
		"selected": "",
		"leaders":  "barrier=hosts-leader,broadcast=hosts-leader,reduce=hosts-leader,all_reduce=hosts-leader,all_gather=hosts-leader,reduce_scatter=hosts-leader",
		"slices":   "broadcast=hosts-chain/4,reduce=hosts-chain/4,all_reduce=hosts-direct/4,all_gather=hosts-ring,reduce_scatter=hosts-ring",
		"trees":    "broadcast=hosts-binomial,reduce=hosts-binomial,all_reduce=hosts-rabenseifner,all_gather=hosts-circulant,reduce_scatter=hosts-rabenseifner",
	} {
		t.Run(name, func(t *testing.T) {
			newTwoHostCluster(t, func(int) []string { return []string{"NEXAR_ALGORITHMS=" + algorithms} }).join()
		})
	}
}

// For a long vector the selector chooses a hierarchical algorithm: a rank with another pin gets a
// mismatch that names it.
func TestHierarchyIsChosen(t *testing.T) {
	t.Parallel()
	c := newTwoHostCluster(t, func(rank int) []string {
		if rank == 3 {
			return []string{"NEXAR_ALGORITHMS=all_reduce=ring"}
		}
		return nil
	})
	mustSucceed(t, runAll(c.ranks, command{Do: "join"}))
	for rank, r := range runAll(c.ranks, command{Do: "loop", Op: "all_reduce", N: 1 << 18, Rounds: 1}) {
		if r.Failure == nil || !strings.Contains(r.Failure.Text, "with the algorithms ") || !strings.Contains(r.Failure.Text, " hosts-") {
			t.Errorf("rank %d: %v, want a mismatch with a hierarchical algorithm", rank, r.Failure)
		}
	}
}
