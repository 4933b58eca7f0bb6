package api

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// BenchmarkHandles alternates 16 concurrent all-reduces with 16 sequential ones, and reports both
// medians and their ratio.
func BenchmarkHandles(b *testing.B) {
	for _, m := range []worldtest.Medium{worldtest.QUIC(), worldtest.Mem()} {
		for _, bytes := range []int{8, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/n=4/%dB", m.Name, bytes), func(b *testing.B) {
				benchHandles(b, m.Cluster(b, 4, nexar.Config{}), bytes)
			})
		}
	}
}

func benchHandles(b *testing.B, comms []*nexar.Comm, bytes int) {
	const each = 16
	ctx := context.Background()
	vectors := make([][each][]float32, len(comms))
	for rank := range vectors {
		for i := range each {
			vectors[rank][i] = make([]float32, bytes/4)
		}
	}
	inRow := func(rank int, c *nexar.Comm) error {
		for _, v := range vectors[rank] {
			if err := nexar.AllReduce(ctx, c, v, nexar.Sum); err != nil {
				return err
			}
		}
		return nil
	}
	started := func(rank int, c *nexar.Comm) error {
		var handles [each]*nexar.Handle
		for i, v := range vectors[rank] {
			handles[i] = nexar.StartAllReduce(ctx, c, v, nexar.Sum)
		}
		return nexar.WaitAll(handles[:]...)
	}
	var row, once []time.Duration
	timed := func(f func(rank int, c *nexar.Comm) error) time.Duration {
		began := time.Now()
		worldtest.OnAll(b, comms, f)
		return time.Since(began)
	}
	for b.Loop() {
		row = append(row, timed(inRow))
		once = append(once, timed(started))
	}
	slices.Sort(row)
	slices.Sort(once)
	r, o := row[len(row)/2], once[len(once)/2]
	b.ReportMetric(float64(r.Microseconds()), "in-a-row-µs")
	b.ReportMetric(float64(o.Microseconds()), "at-once-µs")
	b.ReportMetric(float64(r)/float64(o), "times-faster")
}
