package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A rounding has a vector for each rank, with elements that make every sum inexact, and the
// expected results.
type rounding[T nexar.Number] struct {
	vectors [][]T // by rank
	op      nexar.Op
	combine func(dst, src []T) // the same reduction as a function

	all         []T   // the reduction of all vectors
	scan, below [][]T // by rank: the reductions of the ranks up to it, and before it
}

// roundings is the number of elements. It is prime.
const roundings = 4093

// newRounding computes the results on ranks that share memory.
func newRounding[T nexar.Number](t *testing.T, n int, op nexar.Op) *rounding[T] {
	k := kinds()[slices.IndexFunc(kinds(), func(k *kind) bool { return k.typ == typeOf[T]() })]
	s := &rounding[T]{op: op, vectors: make([][]T, n), scan: make([][]T, n), below: make([][]T, n)}
	s.combine = func(dst, src []T) {
		for i := range dst {
			a, b := k.toFloat(toBits(dst[i])), k.toFloat(toBits(src[i]))
			sum := a + b
			if op == nexar.Prod {
				sum = a * b
			}
			dst[i] = fromBits[T](k.fromFloat(sum))
		}
	}
	for rank := range n {
		for i := range roundings {
			h := worldtest.Mix(uint64(rank)<<32 | uint64(i))
			s.vectors[rank] = append(s.vectors[rank], fromBits[T](k.fromFloat(floatValue(h, op, rounded))))
		}
	}
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, n, nexar.Config{Deterministic: true}), func(rank int, c *nexar.Comm) error {
		all, scan, below := slices.Clone(s.vectors[rank]), slices.Clone(s.vectors[rank]), slices.Clone(s.vectors[rank])
		s.scan[rank], s.below[rank] = scan, below
		if rank == 0 {
			s.all = all
		}
		ctx := t.Context()
		return cmp.Or(nexar.AllReduce(ctx, c, all, op), nexar.Scan(ctx, c, scan, op), nexar.ExclusiveScan(ctx, c, below, op))
	})
	return s
}

// from returns count elements of a vector, beginning with a given one. After its last element
// the vector continues with the first.
func from[T any](v []T, at, count int) (part []T) {
	for i := range count {
		part = append(part, v[(at+i)%len(v)])
	}
	return part
}

// reductionNames are the names of reductions, by the collective that pins name.
func reductionNames() map[plan.Collective][]string {
	return map[plan.Collective][]string{
		plan.AllReduce:     {"all_reduce", "all_reduce_func", "all_reduce_buckets"},
		plan.Reduction:     {"reduce", "reduce_func"},
		plan.ReduceScatter: {"reduce_scatter", "reduce_scatter_v"},
		plan.Scan:          {"scan"},
		plan.ExclusiveScan: {"exclusive_scan"},
	}
}

// errOtherBits reports a result that differs from that of another algorithm.
var errOtherBits = errors.New("other bits than elsewhere")

// try reduces count elements of the vectors, beginning with a given one, and compares the bits.
func (s *rounding[T]) try(ctx context.Context, c *nexar.Comm, name string, at, count int, started bool) error {
	rank, root := c.Rank(), at%c.Size()
	x, want := from(s.vectors[rank], at, count), from(s.all, at, count)
	if (name == "reduce" || name == "reduce_func") && rank != root {
		want = slices.Clone(x)
	}
	either := func(call func() error, start func() *nexar.Handle) error {
		if started {
			return cmp.Or(start().Wait(), sameBits(x, want))
		}
		return cmp.Or(call(), sameBits(x, want))
	}
	switch name {
	case "all_reduce":
		return either(func() error { return nexar.AllReduce(ctx, c, x, s.op) }, func() *nexar.Handle { return nexar.StartAllReduce(ctx, c, x, s.op) })
	case "all_reduce_func":
		return either(func() error { return nexar.AllReduceFunc(ctx, c, x, s.combine) }, func() *nexar.Handle { return nexar.StartAllReduceFunc(ctx, c, x, s.combine) })
	case "all_reduce_buckets":
		parts := [][]T{x[:count/7], x[count/7 : count/3], x[count/3 : count/2], x[count/2:]}
		return either(func() error { return nexar.AllReduceBuckets(ctx, c, parts, s.op) }, func() *nexar.Handle { return nexar.StartAllReduceBuckets(ctx, c, parts, s.op) })
	case "reduce":
		return either(func() error { return nexar.Reduce(ctx, c, x, s.op, root) }, func() *nexar.Handle { return nexar.StartReduce(ctx, c, x, s.op, root) })
	case "reduce_func":
		return either(func() error { return nexar.ReduceFunc(ctx, c, x, s.combine, root) }, func() *nexar.Handle { return nexar.StartReduceFunc(ctx, c, x, s.combine, root) })
	case "scan":
		want = from(s.scan[rank], at, count)
		return either(func() error { return nexar.Scan(ctx, c, x, s.op) }, func() *nexar.Handle { return nexar.StartScan(ctx, c, x, s.op) })
	case "exclusive_scan":
		want = from(s.below[rank], at, count)
		return either(func() error { return nexar.ExclusiveScan(ctx, c, x, s.op) }, func() *nexar.Handle { return nexar.StartExclusiveScan(ctx, c, x, s.op) })
	}
	counts := slices.Repeat([]int{count}, c.Size())
	if name == "reduce_scatter_v" {
		counts[c.Size()-1], counts[0] = count+5, 0
	}
	y := from(s.vectors[rank], at, sum(counts))
	x, want = make([]T, counts[rank]), from(s.all, at+sum(counts[:rank]), counts[rank])
	if name == "reduce_scatter" {
		return either(func() error { return nexar.ReduceScatter(ctx, c, x, y, s.op) }, func() *nexar.Handle { return nexar.StartReduceScatter(ctx, c, x, y, s.op) })
	}
	return either(func() error { return nexar.ReduceScatterV(ctx, c, x, y, counts, s.op) }, func() *nexar.Handle { return nexar.StartReduceScatterV(ctx, c, x, y, counts, s.op) })
}

func sameBits[T nexar.Number](got, want []T) error {
	for i := range got {
		if g, w := toBits(got[i]), toBits(want[i]); g != w {
			return fmt.Errorf("%w: element %d of %d is %v (%#x), want %v (%#x)", errOtherBits, i, len(got), got[i], g, want[i], w)
		}
	}
	return nil
}

// pinsOf returns all pins: each algorithm alone and with each number of channels.
func pinsOf(c plan.Collective) []string {
	pins := []string{""}
	for _, a := range plan.AlgorithmsOn(c, plan.Hosts{}) {
		pins = append(pins, fmt.Sprintf("%v=%s", c, a.Name))
		if !a.Shared {
			pins = append(pins, fmt.Sprintf("%v=%s/1", c, a.Name), fmt.Sprintf("%v=%s/5", c, a.Name))
		}
	}
	return pins
}

// tryAll runs all reductions with all pins, for vectors of different lengths. It returns
// the number of results with other bits.
func (s *rounding[T]) tryAll(t *testing.T, comms []*nexar.Comm, deterministic bool, lengths []int) (others int) {
	t.Helper()
	turn := 0
	for c, names := range reductionNames() {
		for _, pin := range pinsOf(c) {
			for _, name := range names {
				turn++
				if !worldtest.AllTrials() && turn%12 != 1 {
					continue
				}
				count, at, started := lengths[turn%len(lengths)], turn*turn, turn%3 == 0
				err := worldtest.ForEach(len(comms), func(rank int) error {
					pins := []string{pin}
					if pin == "" {
						pins = nil
					}
					return cmp.Or(comms[rank].SetAlgorithms(pins...), s.try(t.Context(), comms[rank], name, at, count, started))
				})
				switch {
				case errors.Is(err, errOtherBits):
					others++
					if deterministic {
						t.Errorf("%s of %d elements, pinned %q:\n%v", name, count, pin, err)
					}
				case err != nil:
					t.Fatal(err)
				}
			}
		}
	}
	return others
}

// TestDeterministic: the reduction of the same elements has the same bits for every
// medium, algorithm, number of channels, function and length. A pin that would change a
// bit is ignored.
func TestDeterministic(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.MemHosts(), worldtest.Sim(), worldtest.QUIC(), worldtest.SHM(), worldtest.TLS(), worldtest.Mixed()) {
			if n != 4 && (worldtest.Brief() || m.Name != "mem" && m.Name != worldtest.MemHosts().Name) {
				continue
			}
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, n), func(t *testing.T) {
				m.Require(t)
				comms := m.Cluster(t, n, nexar.Config{Deterministic: true, BucketBytes: 2000})
				lengths := []int{1, 1001, 12_000}
				if !worldtest.AllTrials() {
					lengths = []int{1001, 5000}
				}
				newRounding[float32](t, n, nexar.Sum).tryAll(t, comms, true, lengths)
				if worldtest.Brief() {
					lengths = lengths[:1]
				}
				newRounding[nexar.BFloat16](t, n, nexar.Sum).tryAll(t, comms, true, lengths)
				if !worldtest.AllTrials() {
					return
				}
				newRounding[float64](t, n, nexar.Sum).tryAll(t, comms, true, lengths)
				newRounding[nexar.Float16](t, n, nexar.Sum).tryAll(t, comms, true, lengths)
				newRounding[nexar.Float8E4M3](t, n, nexar.Sum).tryAll(t, comms, true, lengths)
				if m.Name == "mem" {
					newRounding[float32](t, n, nexar.Prod).tryAll(t, comms, true, lengths)
					newRounding[nexar.Float16](t, n, nexar.Prod).tryAll(t, comms, true, lengths)
				}
			})
		}
	}
}

// TestNotDeterministic: without Deterministic some bits depend on the algorithm, for
// every type.
func TestNotDeterministic(t *testing.T) {
	require.NoRace(t, "it repeats TestConformance with other orders")
	const n = 5
	comms := worldtest.MemLinks().Cluster(t, n, nexar.Config{})
	for name, others := range map[string]int{
		"float32":  newRounding[float32](t, n, nexar.Sum).tryAll(t, comms, false, []int{1001}),
		"float64":  newRounding[float64](t, n, nexar.Sum).tryAll(t, comms, false, []int{1001}),
		"Float16":  newRounding[nexar.Float16](t, n, nexar.Sum).tryAll(t, comms, false, []int{1001}),
		"BFloat16": newRounding[nexar.BFloat16](t, n, nexar.Sum).tryAll(t, comms, false, []int{1001}),
		"E4M3":     newRounding[nexar.Float8E4M3](t, n, nexar.Sum).tryAll(t, comms, false, []int{1001}),
		"E5M2":     newRounding[nexar.Float8E5M2](t, n, nexar.Sum).tryAll(t, comms, false, []int{1001}),
	} {
		if others == 0 {
			t.Errorf("%s: the same bits everywhere, so that the tests show nothing", name)
		}
		t.Logf("%s: other bits in %d reductions", name, others)
	}
}
