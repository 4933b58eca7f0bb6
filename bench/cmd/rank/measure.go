package main

import (
	"context"
	"slices"
	"time"

	"github.com/nexar-go/nexar"
)

const (
	// elem is the size of an element in bytes. All vectors are float32.
	elem = 4
	// runsFirst is the number of runs after which rank 0 first looks at the clock, runsMax the largest number.
	runsFirst, runsMax = 3, 1 << 20
)

// A sample is the output of one rank for one operation at one size.
type sample struct {
	Op        string  `json:"op"`
	Bytes     int     `json:"bytes"`
	Untouched bool    `json:"untouched"`
	Ranks     int     `json:"ranks"`
	Rank      int     `json:"rank"`
	Iters     int     `json:"iters"`
	Median    float64 `json:"median_us"`
	Wrong     int     `json:"wrong"`
}

// A rank is one rank with vectors that are long enough for the largest size.
type rank struct {
	comm     *nexar.Comm
	src, dst []float32
	times    []time.Duration
}

// measure runs one operation at one size: once to check the result, then for the time warm, then for the time budget. With
// untouched it measures a second time, without writing the vectors anew.
func (r *rank) measure(ctx context.Context, o op, bytes int, t task) ([]sample, error) {
	v := o.vectors(place{r.comm.Rank(), r.comm.Size(), bytes / elem})
	src, dst := r.src[:v.src], r.dst[:v.dst]
	wrong, err := r.wrong(ctx, o, v, dst, src)
	if err != nil {
		return nil, err
	}
	input := src
	if v.inPlace {
		input = dst
	}
	rewrite := func() {
		for i := range input {
			input[i] = 1
		}
	}
	samples := []sample{{Op: o.name, Bytes: bytes, Ranks: r.comm.Size(), Rank: r.comm.Rank(), Wrong: wrong}}
	if t.untouched && bytes > 0 {
		samples = append(samples, samples[0])
		samples[1].Untouched = true
	}
	for i := range samples {
		once := func() (time.Duration, error) {
			if !samples[i].Untouched {
				rewrite()
			}
			return r.once(ctx, o, dst, src)
		}
		if samples[i].Untouched { // Sums of the vectors of before would grow.
			clear(src)
			clear(dst)
		}
		if t.warm > 0 {
			if err := r.repeat(ctx, t.warm, once); err != nil {
				return nil, err
			}
		}
		if err := r.repeat(ctx, t.budget, once); err != nil {
			return nil, err
		}
		samples[i].Iters, samples[i].Median = len(r.times), median(r.times)
	}
	return samples, nil
}

// repeat fills r.times with runs until the budget is spent.
func (r *rank) repeat(ctx context.Context, budget time.Duration, once func() (time.Duration, error)) error {
	r.times = r.times[:0]
	began := time.Now()
	for next := []int64{runsFirst}; next[0] > 0; {
		start := time.Now()
		for range next[0] {
			took, err := once()
			if err != nil {
				return err
			}
			r.times = append(r.times, took)
		}
		next[0] = more(len(r.times), int(next[0]), time.Since(start), budget-time.Since(began))
		if err := nexar.Broadcast(ctx, r.comm, next, 0); err != nil { // Rank 0 decides.
			return err
		}
	}
	return nil
}

// more returns the number of the next runs after done: as many as fit into the time left at the speed of the last ones, but
// at most twice as many as before. So neither a slow nor a fast start decides.
func more(done, last int, took, left time.Duration) int64 {
	each := max(took/time.Duration(last), 1)
	return int64(min(max(left/each, 0), time.Duration(2*done), time.Duration(runsMax-done)))
}

// once runs a barrier and then an operation, and returns the time of the operation.
func (r *rank) once(ctx context.Context, o op, dst, src []float32) (time.Duration, error) {
	if err := r.comm.Barrier(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	err := o.run(ctx, r.comm, dst, src)
	took := time.Since(began)
	if o.oneWay {
		took /= 2
	}
	return took, err
}

// wrong runs an operation once and returns the number of wrong elements. Then it clears the vectors,
// so that repeated sums do not grow.
func (r *rank) wrong(ctx context.Context, o op, v vectors, dst, src []float32) (bad int, err error) {
	for i := range src {
		src[i] = value(r.comm.Rank(), i)
	}
	for i := range dst {
		dst[i] = 0
		if v.inPlace {
			dst[i] = value(r.comm.Rank(), i)
		}
	}
	if _, err := r.once(ctx, o, dst, src); err != nil {
		return 0, err
	}
	if v.want != nil {
		for i, got := range dst {
			if got != v.want(i) {
				bad++
			}
		}
	}
	clear(src)
	clear(dst)
	return bad, nil
}

// median returns the median in microseconds, and sorts times.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	n := len(times)
	return float64(times[(n-1)/2]+times[n/2]) / 2 / float64(time.Microsecond)
}
