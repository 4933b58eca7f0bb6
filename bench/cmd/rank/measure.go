package main

import (
	"context"
	"time"

	"github.com/nexar-go/nexar"
)

const (
	// elem is the size of an element in bytes. All vectors are float32.
	elem = 4
	// itersMin is the minimum number of timed runs, for any budget.
	itersMin = 3
)

// A point is a size with its maximum number of timed runs and its number of warm-up runs.
type point struct{ bytes, iters, warm int }

// A sample is the output of one rank for one operation at one size.
type sample struct {
	Op     string  `json:"op"`
	Bytes  int     `json:"bytes"`
	Ranks  int     `json:"ranks"`
	Rank   int     `json:"rank"`
	Iters  int     `json:"iters"`
	Median float64 `json:"median_us"`
	Wrong  int     `json:"wrong"`
}

// A rank is one rank with vectors that are long enough for the largest size.
type rank struct {
	comm     *nexar.Comm
	src, dst []float32
}

// measure runs one operation at one size: once to check the result, then p.warm times, then up to
// p.iters times within budget.
func (r *rank) measure(ctx context.Context, o op, p point, budget time.Duration) (sample, error) {
	v := o.vectors(place{r.comm.Rank(), r.comm.Size(), p.bytes / elem})
	src, dst := r.src[:v.src], r.dst[:v.dst]
	s := sample{Op: o.name, Bytes: p.bytes, Ranks: r.comm.Size(), Rank: r.comm.Rank()}
	var err error
	if s.Wrong, err = r.wrong(ctx, o, v, dst, src); err != nil {
		return s, err
	}
	for range p.warm {
		if _, err := r.once(ctx, o, dst, src); err != nil {
			return s, err
		}
	}
	times := make([]time.Duration, 0, p.iters)
	iters, check, began := []int64{int64(p.iters)}, itersMin, time.Now()
	for len(times) < int(iters[0]) {
		took, err := r.once(ctx, o, dst, src)
		if err != nil {
			return s, err
		}
		times = append(times, took)
		if done := len(times); done == check && done < int(iters[0]) {
			// Rank 0 computes how many runs fit into the budget. The first runs may be
			// slower than later ones, so the estimate is repeated after twice as many.
			iters[0] = fit(done, int(iters[0]), budget, time.Since(began))
			if err := nexar.Broadcast(ctx, r.comm, iters, 0); err != nil {
				return s, err
			}
			check *= 2
		}
	}
	s.Iters, s.Median = len(times), median(times)
	return s, nil
}

// fit returns how many of iters runs fit into the budget if done of them took the time took. It is
// at least done.
func fit(done, iters int, budget, took time.Duration) int64 {
	each := max(took/time.Duration(done), 1)
	return int64(max(done, min(iters, int(budget/each))))
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
