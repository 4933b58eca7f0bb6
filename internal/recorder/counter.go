package recorder

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// Count counts a call that has ended.
func Count(c *trace.Counter, bytes int64, isOK bool) {
	c.Calls++
	if isOK {
		c.Bytes += uint64(bytes)
	} else {
		c.Failed++
	}
}

// CountDuration adds a duration that stands for so many.
func CountDuration(d *trace.Durations, took time.Duration, many uint64) {
	d.Sum += took * time.Duration(many)
	addDurations(d, bucketOf(took), many)
}

// bucketOf returns the index of the bucket of a duration in [trace.Durations].
func bucketOf(d time.Duration) int {
	// 2^30 ns are 1.07 s, so the bucket is this one or the next.
	b := bits.Len64(uint64(max(d, 0))) - 30
	bound := time.Second >> max(0, -b) << max(0, b)
	if d > bound {
		b++
	}
	return min(max(b, trace.DurationFirst), trace.DurationLast)
}

// addDurations adds to a bucket. The first and the last bucket of d are not empty.
func addDurations(d *trace.Durations, bucket int, n uint64) {
	switch {
	case n == 0:
		return
	case len(d.Counts) == 0:
		d.First = bucket
	case bucket < d.First:
		d.Counts = slices.Insert(d.Counts, 0, make([]uint64, d.First-bucket)...)
		d.First = bucket
	}
	if more := bucket - d.First + 1 - len(d.Counts); more > 0 {
		d.Counts = append(d.Counts, make([]uint64, more)...)
	}
	d.Counts[bucket-d.First] += n
}

// CountWait adds a waiting time of a call for ranks.
func CountWait(c *trace.Counter, d time.Duration, ranks []int) {
	if len(ranks) == 0 || d <= 0 {
		return
	}
	c.Waited += d
	if len(ranks) > trace.WaitedForMax {
		return // None of them delays the call more than others.
	}
	for _, rank := range ranks {
		waitFor(c, rank, d)
	}
}

// Merge adds the numbers of o to c.
func Merge(c, o *trace.Counter) {
	c.Plan = cmp.Or(o.Plan, c.Plan)
	c.Calls, c.Failed, c.Bytes, c.Waited = c.Calls+o.Calls, c.Failed+o.Failed, c.Bytes+o.Bytes, c.Waited+o.Waited
	c.Durations.Sum += o.Durations.Sum
	for i, n := range o.Durations.Counts {
		addDurations(&c.Durations, o.Durations.First+i, n)
	}
	for _, t := range o.WaitedFor {
		waitFor(c, t.Rank, t.Time)
	}
}

// waitFor adds a time for one rank. If there is no room, the rank with the shortest time makes room and leaves its time, which the new one may
// have had: so the rank with the longest time is always among them.
func waitFor(c *trace.Counter, rank int, d time.Duration) {
	list := c.WaitedFor
	i := slices.IndexFunc(list, func(t trace.RankTime) bool { return t.Rank == rank })
	switch {
	case i >= 0:
	case len(list) < trace.WaitedForMax:
		i = len(list)
		list = append(list, trace.RankTime{Rank: rank})
	default:
		i = len(list) - 1
		list[i].Rank = rank
	}
	list[i].Time += d
	for ; i > 0 && list[i].Time > list[i-1].Time; i-- {
		list[i], list[i-1] = list[i-1], list[i]
	}
	c.WaitedFor = list
}
