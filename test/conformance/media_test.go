package conformance

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestHierarchicalChoice: ranks that share memory within each host, and not between
// hosts, choose hierarchical plans, and all choose the same one. Other ranks do not.
func TestHierarchicalChoice(t *testing.T) {
	require.NoRace(t, "it repeats other tests with many calls")
	for _, test := range []struct {
		worldtest.Medium
		ranks int
		want  bool
	}{
		{worldtest.Mixed(), 4, true},
		{worldtest.Mixed(), 6, true},
		{worldtest.Mixed(), 2, false}, // each on a host of its own
		{worldtest.TLS(), 4, false},
		{worldtest.Mem(), 2, false},
		{worldtest.Mem(), 4, runtime.GOMAXPROCS(0) == 1}, // On one processor, the plans of hosts win for groups of ranks as well.
	} {
		t.Run(fmt.Sprintf("%s/ranks=%d", test.Name, test.ranks), func(t *testing.T) {
			test.Require(t)
			comms := test.Cluster(t, test.ranks, nexar.Config{})
			first, knowsHosts, err := hostsAreUsed(comms[0], 1<<20)
			if err != nil || knowsHosts != test.want {
				t.Errorf("an all-reduce of 1 MiB by %s: %v", first.Name, err)
			}
			for rank, c := range comms {
				if got, _, err := hostsAreUsed(c, 1<<20); err != nil || got.Name != first.Name || got.Channels != first.Channels {
					t.Errorf("rank %d chooses %+v (%v), rank 0 %+v", rank, got, err, first)
				}
			}
		})
	}
}
