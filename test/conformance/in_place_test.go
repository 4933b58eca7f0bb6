package conformance

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestInPlace: where one buffer may be a block of the other, the result is the same by
// every algorithm, over several channels, and whether or not the other ranks do it as
// well. A brief test covers pairs on more than two ranks: each algorithm with both lengths, with and without the other
// ranks, but not all four combinations.
func TestInPlace(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		for _, n := range []int{1, 2, 3, 5} {
			if m.Name != "mem" && n != 3 || worldtest.Brief() && n != 3 {
				continue
			}
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, n), func(t *testing.T) {
				t.Parallel()
				comms := m.Cluster(t, n, nexar.Config{})
				counts := []int{0, 1, 1000, 40_000}
				if worldtest.Brief() {
					counts = []int{1, 17_000} // The longer ones need a grant.
				}
				for _, c := range []plan.Collective{plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter} {
					for i, count := range counts {
						inPlace(t, comms, c, i, count)
					}
				}
			})
		}
	}
}

// inPlace runs all trials of a collective with a length, the ith of the test.
func inPlace(t *testing.T, comms []*nexar.Comm, c plan.Collective, i, count int) {
	t.Helper()
	float32s := kinds()[8]
	for algorithm, a := range (&trialGenerator{n: len(comms)}).algorithms(c) {
		if !a.Fits(len(comms)) {
			continue
		}
		for _, every := range []int{1, 2} {
			if !worldtest.AllTrials() && (algorithm+every+i)%2 != 0 {
				continue
			}
			for _, op := range []nexar.Op{nexar.Sum, nexar.Avg} {
				if op == nexar.Avg && c != plan.ReduceScatter {
					continue
				}
				root := (len(comms) - 1) / every * every
				channels := (&trialGenerator{n: len(comms)}).channels(c, a, root)
				tr := trial{
					collective: c, kind: float32s, op: op, count: count, root: root,
					algorithm: algorithm, channels: channels[(count+algorithm)%len(channels)], late: -1, inPlace: every,
				}
				if err := tr.run(comms); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
