package recorder

import (
	"slices"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// Durations counts durations for [trace.Durations].
type Durations struct {
	sum    time.Duration
	counts [trace.DurationLast - trace.DurationFirst + 1]uint64
}

// Add adds a duration that stands for so many.
func (d *Durations) Add(took time.Duration, many int64) {
	d.sum += took * time.Duration(many)
	d.counts[trace.DurationBucket(took)-trace.DurationFirst] += uint64(many)
}

// Merge adds the durations of o.
func (d *Durations) Merge(o *Durations) {
	d.sum += o.sum
	for i, n := range o.counts {
		d.counts[i] += n
	}
}

// Trace returns the durations without empty buckets at both ends.
func (d *Durations) Trace() trace.Durations {
	isUsed := func(n uint64) bool { return n > 0 }
	first := slices.IndexFunc(d.counts[:], isUsed)
	if first < 0 {
		return trace.Durations{}
	}
	last := first
	for i, n := range d.counts {
		if isUsed(n) {
			last = i
		}
	}
	return trace.Durations{Sum: d.sum, First: first + trace.DurationFirst, Counts: slices.Clone(d.counts[first : last+1])}
}

// Waits adds up waiting times of calls for other ranks.
type Waits struct {
	Sum   time.Duration
	Ranks []trace.RankTime // with the longest times
}

// Add adds a waiting time of a call for ranks.
func (w *Waits) Add(d time.Duration, ranks []int) {
	if len(ranks) == 0 || d <= 0 {
		return
	}
	w.Sum += d
	if len(ranks) > trace.WaitedForMax {
		return // None of them delays the call more than others.
	}
	for _, rank := range ranks {
		w.add(rank, d)
	}
}

// Merge adds the times of o.
func (w *Waits) Merge(o *Waits) {
	w.Sum += o.Sum
	for _, t := range o.Ranks {
		w.add(t.Rank, t.Time)
	}
}

// add adds a time for one rank. If there is no room, the rank with the shortest time makes room and leaves its time, which the new one may
// have had: so the rank with the longest time is always among them.
func (w *Waits) add(rank int, d time.Duration) {
	i := slices.IndexFunc(w.Ranks, func(t trace.RankTime) bool { return t.Rank == rank })
	switch {
	case i >= 0:
	case len(w.Ranks) < trace.WaitedForMax:
		i = len(w.Ranks)
		w.Ranks = append(w.Ranks, trace.RankTime{Rank: rank})
	default:
		i = len(w.Ranks) - 1
		w.Ranks[i].Rank = rank
	}
	w.Ranks[i].Time += d
	for ; i > 0 && w.Ranks[i].Time > w.Ranks[i-1].Time; i-- {
		w.Ranks[i], w.Ranks[i-1] = w.Ranks[i-1], w.Ranks[i]
	}
}
