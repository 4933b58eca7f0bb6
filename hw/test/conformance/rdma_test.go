//go:build linux && conformance

// Package conformance runs the conformance suite of collectives, test/conformance of the main module, over RDMA. The script
// hw/vm/conformance compiles it together with the files of the suite.
package conformance

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/hw/transport/rdma"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestRDMA runs a sample of the trials of TestConformance on 2 and 4 ranks.
func TestRDMA(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			var counters rdma.Counters
			medium := worldtest.Over(rdma.Factory(rdma.Config{Listen: "127.0.0.1:0", Counters: &counters}), cost.QUIC())
			comms := medium.Cluster(t, n, nexar.Config{})
			b := trialGenerator{n: n, kinds: kinds(), network: medium.Cost}
			tried := make(map[plan.Collective]int)
			all, sampled := uint64(0), 0
			for tr := range b.trials {
				all++
				if tried[tr.collective] > 0 && worldtest.Mix(all)%uint64(5*n) != 0 {
					continue
				}
				sampled++
				tried[tr.collective]++
				if err := tr.run(comms); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d of %d trials, by collective %v; %d bytes written remotely", sampled, all, tried, counters.Written())
			if n := counters.Fallbacks(); n > 0 {
				t.Errorf("%d queue pairs failed", n)
			}
		})
	}
}
