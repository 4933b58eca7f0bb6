//go:build linux && conformance

// Package conformance runs the conformance suite of collectives, test/conformance of the main module, over RDMA. The script
// hw/vm/conformance compiles it together with the files of the suite.
package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/hw/transport/rdma"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestRDMA runs all trials of TestConformance on 2 and 4 ranks, or with -short a sample. Payloads of 4 KiB and more that are not reduced are written
// remotely, so that each collective with such payloads must write some.
func TestRDMA(t *testing.T) {
	written := map[plan.Collective]bool{
		plan.Broadcast: true, plan.AllReduce: true, plan.Gather: true, plan.AllGather: true, plan.Scatter: true, plan.AllToAll: true,
	}
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			var counters rdma.Counters
			medium := worldtest.Over(rdma.Factory(rdma.Config{Listen: "127.0.0.1:0", PinMin: 4 << 10, Stall: time.Minute, Counters: &counters}), cost.QUIC())
			comms := medium.Cluster(t, n, nexar.Config{})
			b := trialGenerator{n: n, kinds: kinds(), network: medium.Cost}
			tried, bytes := make(map[plan.Collective]int), make(map[plan.Collective]uint64)
			all, sampled := uint64(0), 0
			for tr := range b.trials {
				all++
				if testing.Short() && tried[tr.collective] > 0 && worldtest.Mix(all)%uint64(5*n) != 0 {
					continue
				}
				sampled++
				tried[tr.collective]++
				before := counters.Written()
				if err := tr.run(comms); err != nil {
					t.Fatal(err)
				}
				bytes[tr.collective] += counters.Written() - before
			}
			t.Logf("%d of %d trials, by collective %v", sampled, all, tried)
			t.Logf("%d bytes written remotely, by collective %v", counters.Written(), bytes)
			for c := range written {
				if bytes[c] == 0 {
					t.Errorf("%v has written no byte remotely", c)
				}
			}
			if n := counters.Failures(); n > 0 {
				t.Errorf("%d queue pairs failed", n)
			}
		})
	}
}
