package nexar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// overHosts is overLinks for ranks of which each two that follow each other are on
// one host.
func overHosts() medium {
	return medium{"links between hosts", cost.Local(), func(n int) (membership.View, []transport.Transport, func() error, error) {
		view, list, end, err := listenLinks(n)
		for rank := range view.Nodes {
			view.Nodes[rank].Host = fmt.Sprint("host ", rank/2)
		}
		return view, list, end, err
	}}
}

// A rounding is a vector of many elements for each rank, whose sums have to be
// rounded, and what becomes of each of them.
type rounding[T Number] struct {
	vectors [][]T // by rank
	op      Op
	combine func(dst, src []T) // does the same

	all         []T   // the reduction of all vectors
	scan, below [][]T // by rank: that of the ranks up to it, and before it
}

// roundings is how many elements there are; it is prime.
const roundings = 4093

// newRounding finds out what the results are on ranks that share memory.
func newRounding[T Number](t *testing.T, n int, op Op) *rounding[T] {
	k := kinds()[slices.IndexFunc(kinds(), func(k *kind) bool { return k.typ == typeOf[T]() })]
	s := &rounding[T]{op: op, vectors: make([][]T, n), scan: make([][]T, n), below: make([][]T, n)}
	s.combine = func(dst, src []T) {
		for i := range dst {
			a, b := k.toFloat(toBits(dst[i])), k.toFloat(toBits(src[i]))
			sum := a + b
			if op == Prod {
				sum = a * b
			}
			dst[i] = fromBits[T](k.fromFloat(sum))
		}
	}
	for rank := range n {
		for i := range roundings {
			h := mix(uint64(rank)<<32 | uint64(i))
			s.vectors[rank] = append(s.vectors[rank], fromBits[T](k.fromFloat(floatValue(h, op, rounded))))
		}
	}
	onAll(t, overMem.cluster(t, n, Config{Deterministic: true}), func(rank int, c *Comm) error {
		all, scan, below := slices.Clone(s.vectors[rank]), slices.Clone(s.vectors[rank]), slices.Clone(s.vectors[rank])
		s.scan[rank], s.below[rank] = scan, below
		if rank == 0 {
			s.all = all
		}
		ctx := t.Context()
		return cmp.Or(AllReduce(ctx, c, all, op), Scan(ctx, c, scan, op), ExclusiveScan(ctx, c, below, op))
	})
	return s
}

// from are count elements of a vector, from one on, which begins anew at its end.
func from[T any](v []T, at, count int) (part []T) {
	for i := range count {
		part = append(part, v[(at+i)%len(v)])
	}
	return part
}

// reductionNames are functions that reduce, by the collective that pins name.
func reductionNames() map[plan.Collective][]string {
	return map[plan.Collective][]string{
		plan.AllReduce:     {"all_reduce", "all_reduce_func", "all_reduce_buckets"},
		plan.Reduction:     {"reduce", "reduce_func"},
		plan.ReduceScatter: {"reduce_scatter", "reduce_scatter_v"},
		plan.Scan:          {"scan"},
		plan.ExclusiveScan: {"exclusive_scan"},
	}
}

// errOtherBits says that a result is not what it was elsewhere.
var errOtherBits = errors.New("other bits than elsewhere")

// try reduces count elements of the vectors, from one on, and compares the bits.
func (s *rounding[T]) try(ctx context.Context, c *Comm, name string, at, count int, started bool) error {
	rank, root := c.Rank(), at%c.Size()
	x, want := from(s.vectors[rank], at, count), from(s.all, at, count)
	if (name == "reduce" || name == "reduce_func") && rank != root {
		want = slices.Clone(x)
	}
	either := func(call func() error, start func() *Handle) error {
		if started {
			return cmp.Or(start().Wait(), sameBits(x, want))
		}
		return cmp.Or(call(), sameBits(x, want))
	}
	switch name {
	case "all_reduce":
		return either(func() error { return AllReduce(ctx, c, x, s.op) }, func() *Handle { return StartAllReduce(ctx, c, x, s.op) })
	case "all_reduce_func":
		return either(func() error { return AllReduceFunc(ctx, c, x, s.combine) }, func() *Handle { return StartAllReduceFunc(ctx, c, x, s.combine) })
	case "all_reduce_buckets":
		parts := [][]T{x[:count/7], x[count/7 : count/3], x[count/3 : count/2], x[count/2:]}
		return either(func() error { return AllReduceBuckets(ctx, c, parts, s.op) }, func() *Handle { return StartAllReduceBuckets(ctx, c, parts, s.op) })
	case "reduce":
		return either(func() error { return Reduce(ctx, c, x, s.op, root) }, func() *Handle { return StartReduce(ctx, c, x, s.op, root) })
	case "reduce_func":
		return either(func() error { return ReduceFunc(ctx, c, x, s.combine, root) }, func() *Handle { return StartReduceFunc(ctx, c, x, s.combine, root) })
	case "scan":
		want = from(s.scan[rank], at, count)
		return either(func() error { return Scan(ctx, c, x, s.op) }, func() *Handle { return StartScan(ctx, c, x, s.op) })
	case "exclusive_scan":
		want = from(s.below[rank], at, count)
		return either(func() error { return ExclusiveScan(ctx, c, x, s.op) }, func() *Handle { return StartExclusiveScan(ctx, c, x, s.op) })
	}
	counts := slices.Repeat([]int{count}, c.Size())
	if name == "reduce_scatter_v" {
		counts[c.Size()-1], counts[0] = count+5, 0
	}
	y := from(s.vectors[rank], at, sum(counts))
	x, want = make([]T, counts[rank]), from(s.all, at+sum(counts[:rank]), counts[rank])
	if name == "reduce_scatter" {
		return either(func() error { return ReduceScatter(ctx, c, x, y, s.op) }, func() *Handle { return StartReduceScatter(ctx, c, x, y, s.op) })
	}
	return either(func() error { return ReduceScatterV(ctx, c, x, y, counts, s.op) }, func() *Handle { return StartReduceScatterV(ctx, c, x, y, counts, s.op) })
}

func sameBits[T Number](got, want []T) error {
	for i := range got {
		if g, w := toBits(got[i]), toBits(want[i]); g != w {
			return fmt.Errorf("%w: element %d of %d is %v (%#x), want %v (%#x)", errOtherBits, i, len(got), got[i], g, want[i], w)
		}
	}
	return nil
}

// pinsOf are all ways that can be asked for: each algorithm by its name, and on
// so many channels.
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

// tryAll has ranks carry out all reductions by all pins, of vectors of different
// lengths. It returns how many have had other bits than elsewhere.
func (s *rounding[T]) tryAll(t *testing.T, comms []*Comm, lengths []int) (others int) {
	t.Helper()
	turn := 0
	for c, names := range reductionNames() {
		for _, pin := range pinsOf(c) {
			for _, name := range names {
				turn++
				if raceDetector && turn%4 != 1 {
					continue
				}
				count, at, started := lengths[turn%len(lengths)], turn*turn, turn%3 == 0
				err := forEach(len(comms), func(rank int) error {
					pins := []string{pin}
					if pin == "" {
						pins = nil
					}
					return cmp.Or(comms[rank].Pin(pins...), s.try(t.Context(), comms[rank], name, at, count, started))
				})
				switch {
				case errors.Is(err, errOtherBits):
					others++
					if comms[0].node.deterministic {
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

// TestDeterministic: the same elements have the same reduction, bit by bit,
// whatever the medium, the algorithm, the number of channels, the function and
// the length are. What is pinned is not taken if it would change a bit.
func TestDeterministic(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		for _, m := range []medium{overMem, overLinks, overHosts(), overSim, overQUIC, overShared, overTCP, overMixed} {
			if n != 4 && (raceDetector || m.name != "mem" && m.name != overHosts().name) {
				continue
			}
			t.Run(fmt.Sprintf("%s/ranks=%d", m.name, n), func(t *testing.T) {
				m.needs(t)
				comms := m.cluster(t, n, Config{Deterministic: true, BucketBytes: 2000})
				lengths := []int{1, 1001, 12_000}
				if !allTrials() {
					lengths = []int{1001, 5000}
				}
				newRounding[float32](t, n, Sum).tryAll(t, comms, lengths)
				if raceDetector {
					lengths = lengths[:1]
				}
				newRounding[BFloat16](t, n, Sum).tryAll(t, comms, lengths)
				if !allTrials() {
					return
				}
				newRounding[float64](t, n, Sum).tryAll(t, comms, lengths)
				newRounding[Float16](t, n, Sum).tryAll(t, comms, lengths)
				if m.name == "mem" {
					newRounding[float32](t, n, Prod).tryAll(t, comms, lengths)
					newRounding[Float16](t, n, Prod).tryAll(t, comms, lengths)
				}
			})
		}
	}
}

// TestNotDeterministic: without the setting there are such bits that depend on
// the algorithm, for every type.
func TestNotDeterministic(t *testing.T) {
	const n = 5
	comms := overLinks.cluster(t, n, Config{})
	for name, others := range map[string]int{
		"float32":  newRounding[float32](t, n, Sum).tryAll(t, comms, []int{1001}),
		"float64":  newRounding[float64](t, n, Sum).tryAll(t, comms, []int{1001}),
		"Float16":  newRounding[Float16](t, n, Sum).tryAll(t, comms, []int{1001}),
		"BFloat16": newRounding[BFloat16](t, n, Sum).tryAll(t, comms, []int{1001}),
	} {
		if others == 0 {
			t.Errorf("%s: the same bits everywhere, so that the tests show nothing", name)
		}
		t.Logf("%s: other bits in %d reductions", name, others)
	}
}
