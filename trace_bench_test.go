package nexar

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/recorder"
)

// BenchmarkTrace measures the cost of tracing an all-reduce of 8 bytes between two
// ranks that share memory. Rounds with and without tracing alternate; the medians of
// both are reported, in nanoseconds per operation.
func BenchmarkTrace(b *testing.B) {
	const perRound = 2000
	comms := localCluster(b, 2, Config{})
	round := func(on bool) float64 {
		for _, c := range comms {
			if on {
				c.comm.SetTracing(&recorder.Comm{Epoch: 1, Ranks: c.impl.Ranks}, nil)
			} else {
				c.comm.SetTracing(nil, nil)
			}
		}
		start := time.Now()
		onAll(b, comms, func(_ int, c *Comm) error {
			x := make([]float32, 2)
			for range perRound {
				if err := AllReduce(context.Background(), c, x, Sum); err != nil {
					return err
				}
			}
			return nil
		})
		return float64(time.Since(start)) / perRound
	}
	var with, without []float64
	for b.Loop() {
		with = append(with, round(true))
		without = append(without, round(false))
	}
	slices.Sort(with)
	slices.Sort(without)
	on, off := with[len(with)/2], without[len(without)/2]
	b.ReportMetric(on, "with-ns")
	b.ReportMetric(off, "without-ns")
	b.ReportMetric(100*(on/off-1), "%more")
}
