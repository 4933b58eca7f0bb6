package main

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar"
)

// rounds is the number of measurements of each part.
const rounds = 9

// A part is a part of a step, measured separately.
type part string

const (
	computing   part = "computation"
	reducing    part = "all-reduces"
	sequential  part = "sequential"
	overlapping part = "overlapping"
)

func parts() []part { return []part{computing, reducing, sequential, overlapping} }

// A step is a training step, which computes gradients and averages them over all ranks.
type step struct {
	comm      *nexar.Comm
	gradients [][]float32
	handles   []*nexar.Handle
}

func newStep(c *nexar.Comm, layers, size int) *step {
	s := &step{comm: c, handles: make([]*nexar.Handle, layers)}
	for range layers {
		s.gradients = append(s.gradients, make([]float32, size))
	}
	return s
}

// do executes a part. compute computes one gradient.
func (s *step) do(ctx context.Context, p part, compute func()) error {
	for i, g := range s.gradients {
		if p != reducing {
			compute()
		}
		switch p {
		case reducing, sequential:
			if err := nexar.AllReduce(ctx, s.comm, g, nexar.Avg); err != nil {
				return err
			}
		case overlapping:
			// The next iteration computes during this all-reduce.
			s.handles[i] = nexar.StartAllReduce(ctx, s.comm, g, nexar.Avg)
		}
	}
	if p == overlapping {
		return nexar.WaitAll(s.handles...)
	}
	return nil
}

// measure returns the median time of each part on the slowest rank. The parts take turns, so that
// other load of the machine affects all alike.
func (s *step) measure(ctx context.Context, compute func()) (map[part]time.Duration, error) {
	took := make(map[part][]time.Duration)
	for round := range 1 + rounds {
		for _, p := range parts() {
			d, err := s.time(ctx, p, compute)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first round is slower, since it touches new memory
				took[p] = append(took[p], d)
			}
		}
	}
	medians := make(map[part]time.Duration)
	for p, all := range took {
		slices.Sort(all)
		medians[p] = all[len(all)/2]
	}
	return medians, nil
}

// time runs a part once and returns its time on the slowest rank.
func (s *step) time(ctx context.Context, p part, compute func()) (time.Duration, error) {
	if err := s.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := s.do(ctx, p, compute); err != nil {
		return 0, err
	}
	slowest := []int64{int64(time.Since(began))}
	if err := nexar.AllReduce(ctx, s.comm, slowest, nexar.Max); err != nil {
		return 0, err
	}
	return time.Duration(slowest[0]), nil
}

// computations returns two computations that take about as long as the all-reduce of a gradient: busy
// keeps a processor busy, with the same work on all ranks, and waiting sleeps.
func (s *step) computations(ctx context.Context) (busy, waiting func(), err error) {
	shortest := time.Duration(math.MaxInt64)
	for range rounds {
		took, err := s.time(ctx, reducing, nil)
		if err != nil {
			return nil, nil, err
		}
		shortest = min(shortest, took)
	}
	each := shortest / time.Duration(len(s.gradients))

	const trial = 100_000
	fastest := time.Duration(math.MaxInt64)
	for range rounds {
		began := time.Now()
		arithmetic(trial)
		fastest = min(fastest, time.Since(began))
	}
	amount := []int64{int64(trial * float64(each) / float64(max(1, fastest)))}
	if err := nexar.Broadcast(ctx, s.comm, amount, 0); err != nil {
		return nil, nil, err
	}
	return func() { arithmetic(amount[0]) }, func() { time.Sleep(each) }, nil
}

// arithmetic keeps a processor busy without memory accesses.
func arithmetic(amount int64) {
	x := 1.0
	for range amount {
		x = x*0.999 + 0.001
	}
	if x > 2 {
		panic("arithmetic: x exceeds 2") // x is needed, or the compiler removes the loop
	}
}
