package nexar

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkHandles puts 16 all-reduces that are under way at once beside the same
// 16 one after the other, one of each in turn, and reports the medians and their
// ratio.
func BenchmarkHandles(b *testing.B) {
	for _, m := range []medium{overQUIC, overMem} {
		for _, bytes := range []int{8, 4 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/n=4/%dB", m.name, bytes), func(b *testing.B) {
				benchHandles(b, m.cluster(b, 4, Config{}), bytes)
			})
		}
	}
}

func benchHandles(b *testing.B, comms []*Comm, bytes int) {
	const each = 16
	ctx := context.Background()
	vectors := make([][each][]float32, len(comms))
	for rank := range vectors {
		for i := range each {
			vectors[rank][i] = make([]float32, bytes/4)
		}
	}
	inRow := func(rank int, c *Comm) error {
		for _, v := range vectors[rank] {
			if err := AllReduce(ctx, c, v, Sum); err != nil {
				return err
			}
		}
		return nil
	}
	started := func(rank int, c *Comm) error {
		var handles [each]*Handle
		for i, v := range vectors[rank] {
			handles[i] = StartAllReduce(ctx, c, v, Sum)
		}
		return WaitAll(handles[:]...)
	}
	var row, once []time.Duration
	timed := func(f func(rank int, c *Comm) error) time.Duration {
		began := time.Now()
		onAll(b, comms, f)
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
