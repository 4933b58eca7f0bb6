//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/nexar-go/nexar"
)

// vectors are those of one rank for a collective: one has n elements, and all has n for each rank. in and out are
// different memory.
type vectors struct {
	rank, size, n    int
	one, oneOut      []float64
	all, allOut      []float64
	free             []func()
	root, last, left int // ranks: the first, the last, and the one before this one
}

func newVectors(w *nexar.Comm, n int) (v *vectors, err error) {
	v = &vectors{rank: w.Rank(), size: w.Size(), n: n, last: w.Size() - 1, left: (w.Rank() + w.Size() - 1) % w.Size()}
	for to, k := range map[*[]float64]int{&v.one: n, &v.oneOut: n, &v.all: n * v.size, &v.allOut: n * v.size} {
		memory, free, err := nexar.AllocRegistered[float64](k)
		if err != nil {
			v.close()
			return nil, err
		}
		*to, v.free = memory, append(v.free, free)
	}
	return v, nil
}

func (v *vectors) close() {
	for _, free := range v.free {
		free()
	}
}

// element is element i of the vector of a rank.
func element(rank, i int) float64 { return float64(1000*(rank+1) + i%97) }

// sum is the sum of element i of the ranks before end.
func sum(end, i int) (x float64) {
	for r := range end {
		x += element(r, i)
	}
	return x
}

// fill sets the elements of the input.
func (v *vectors) fill() {
	for i := range v.one {
		v.one[i], v.oneOut[i] = element(v.rank, i), 0
	}
	for i := range v.all {
		v.all[i], v.allOut[i] = element(v.rank, i), 0
	}
}

// check compares a vector with the correct result.
func check(got []float64, want func(i int) float64) error {
	for i, x := range got {
		if x != want(i) {
			return fmt.Errorf("element %d is %v, want %v", i, x, want(i))
		}
	}
	return nil
}

// A collective runs one collective, and checks the result.
type collective struct {
	name string
	run  func(ctx context.Context, w *nexar.Comm, v *vectors) error
	got  func(v *vectors) ([]float64, func(i int) float64) // on this rank; no elements if it gets none
}

// only returns a vector on one rank.
func only(v *vectors, rank int, x []float64) []float64 {
	if v.rank == rank {
		return x
	}
	return nil
}

func collectivesOf() []collective {
	return []collective{
		{"broadcast", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.Broadcast(ctx, w, v.one, v.last)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.one, func(i int) float64 { return element(v.last, i) }
			}},
		{"reduce", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.Reduce(ctx, w, v.one, nexar.Sum, v.last)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return only(v, v.last, v.one), func(i int) float64 { return sum(v.size, i) }
			}},
		{"all_reduce", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.AllReduce(ctx, w, v.one, nexar.Sum)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.one, func(i int) float64 { return sum(v.size, i) }
			}},
		{"gather", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.Gather(ctx, w, only(v, v.root, v.allOut), v.one, v.root)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return only(v, v.root, v.allOut), func(i int) float64 { return element(i/v.n, i%v.n) }
			}},
		{"all_gather", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.AllGather(ctx, w, v.allOut, v.one)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.allOut, func(i int) float64 { return element(i/v.n, i%v.n) }
			}},
		{"scatter", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.Scatter(ctx, w, v.oneOut, only(v, v.root, v.all), v.root)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.oneOut, func(i int) float64 { return element(v.root, v.rank*v.n+i) }
			}},
		{"reduce_scatter", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.ReduceScatter(ctx, w, v.oneOut, v.all, nexar.Sum)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.oneOut, func(i int) float64 { return sum(v.size, v.rank*v.n+i) }
			}},
		{"all_to_all", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.AllToAll(ctx, w, v.allOut, v.all)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.allOut, func(i int) float64 { return element(i/v.n, v.rank*v.n+i%v.n) }
			}},
		{"scan", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			return nexar.Scan(ctx, w, v.one, nexar.Sum)
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.one, func(i int) float64 { return sum(v.rank+1, i) }
			}},
		{"exchange", func(ctx context.Context, w *nexar.Comm, v *vectors) error {
			_, err := nexar.Exchange(ctx, w, v.oneOut, v.one, (v.rank+1)%v.size, v.left, 1)
			return err
		},
			func(v *vectors) ([]float64, func(int) float64) {
				return v.oneOut, func(i int) float64 { return element(v.left, i) }
			}},
	}
}

// collectives runs each collective with vectors of f.suite elements in registered memory. Rank 0 writes a table of the bytes that
// this process has written remotely for each.
func (f *benchFlags) collectives(ctx context.Context, node *nexar.Node, out io.Writer) error {
	w := node.World()
	v, err := newVectors(w, f.suite)
	if err != nil {
		return err
	}
	defer v.close()
	var rows strings.Builder
	table := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "bytes\tcollective\tcopied\twritten\t")
	for _, c := range collectivesOf() {
		v.fill()
		if err := w.Barrier(ctx); err != nil {
			return err
		}
		before := f.counts()
		if err := w.Barrier(ctx); err != nil { // All ranks of this process have read the counters.
			return err
		}
		if err := c.run(ctx, w, v); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := check(c.got(v)); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err := w.Barrier(ctx); err != nil {
			return err
		}
		after := f.counts()
		fmt.Fprintf(table, "%d\t%s\t%d\t%d\t\n", 8*f.suite, c.name, after.copied-before.copied, after.written-before.written)
	}
	if w.Rank() > 0 {
		return nil
	}
	table.Flush()
	_, err = fmt.Fprintf(out, "collectives over %s, %d ranks, %d of them in this process; copied and written are bytes of the transport in this process\n%s%s",
		f.transport, w.Size(), f.ranks, rows.String(), f.failures())
	return err
}
