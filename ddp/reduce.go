package ddp

import (
	"context"
	"slices"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
)

// A reducer replaces the gradients of a bucket by their mean over all samples. The worker of a step calls it, for one bucket after another.
type reducer[T Float] interface {
	// planned is called when buckets consist of other parameters than before.
	planned(buckets [][]int)
	// reduce reduces a bucket, or starts to and appends to s.handles. weight is the share of this rank in the samples, and the same on all ranks if isEven.
	reduce(ctx context.Context, s *step[T], b bucket[T], weight float64, isEven bool) error
}

// A bucket has gradients that are reduced together.
type bucket[T Float] struct {
	number int
	params []int
	grads  [][]T // of params
}

func (m *Model[T]) newReducer() reducer[T] {
	switch {
	case m.cfg.Format != Exact:
		return &rounded[T]{comm: m.comm, format: m.cfg.Format}
	case m.cfg.Compressor != nil:
		c := &compressed[T]{comm: m.comm}
		for i := range m.params {
			c.compressors = append(c.compressors, m.cfg.Compressor(i))
		}
		return c
	default:
		return exact[T]{m.comm}
	}
}

// reduce is the worker of a step.
func (m *Model[T]) reduce(ctx context.Context, s *step[T]) {
	defer close(s.done)
	own := s.counts[m.comm.Rank()]
	isEven := !slices.ContainsFunc(s.counts, func(n int64) bool { return n != own })
	for b := range s.work {
		if s.err != nil {
			continue
		}
		grads := make([][]T, 0, len(m.buckets[b]))
		for _, i := range m.buckets[b] {
			g := m.params[i].Grad
			if own == 0 {
				clear(g)
			}
			if m.cfg.NonFinite != Pass && s.nonFinite == 0 && !isFinite(g) {
				s.nonFinite = i + 1
			}
			grads = append(grads, g)
		}
		s.err = m.reducer.reduce(ctx, s, bucket[T]{b, m.buckets[b], grads}, float64(own)/float64(s.total), isEven)
	}
}

// exact reduces gradients in their own format.
type exact[T Float] struct{ comm *nexar.Comm }

func (exact[T]) planned([][]int) {}

func (r exact[T]) reduce(ctx context.Context, s *step[T], b bucket[T], weight float64, isEven bool) error {
	op := nexar.Avg
	if !isEven {
		op = nexar.Sum
		for _, g := range b.grads {
			scale(g, weight)
		}
	}
	s.handles = append(s.handles, nexar.StartAllReduceBuckets(ctx, r.comm, b.grads, op))
	return nil
}

// compressed reduces gradients by the compressors of the program.
type compressed[T Float] struct {
	comm        *nexar.Comm
	compressors []compress.Compressor // by parameter
}

func (*compressed[T]) planned([][]int) {}

func (r *compressed[T]) reduce(ctx context.Context, s *step[T], b bucket[T], weight float64, _ bool) error {
	for k, g := range b.grads {
		scale(g, weight)
		s.handles = append(s.handles, nexar.StartAllReduceCompressed(ctx, r.comm, g, nexar.Sum, r.compressors[b.params[k]]))
	}
	return nil
}
