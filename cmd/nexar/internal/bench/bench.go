// Package bench measures the operations of a communicator and verifies every
// result.
//
// Call Run on every rank with the same Config, or Compare to measure all
// algorithms of each operation beside the predictions of the cost model. Rank 0
// decides the number of repetitions and gets the results.
//
// Every run of an operation begins with a barrier, from which each rank measures
// its time. The slowest rank counts: results are the maximum of the ranks' medians
// and of their 99th percentiles. The elements of vectors depend on position and rank,
// and are small enough for sums of float32 to be exact in any order, so that every
// element has one right value.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar"
)

// Config selects the measurements. It is the same on every rank.
type Config struct {
	Ops      []string      // names from Ops; nil is all
	MinBytes int64         // size of the smallest vector: 8 by default
	MaxBytes int64         // and of the largest: 64 MiB by default
	Factor   int64         // from one size to the next: 2 by default
	Runs     int           // of every size, or in every turn of an algorithm; 0 is as many as Duration allows
	Duration time.Duration // of all together: 90 seconds by default. Every size is run, however long that takes

	// Progress, if not nil, is called on rank 0 before each size, with the number of
	// completed and of all sizes.
	Progress func(done, all int, op string, bytes int64)
	// Result, if not nil, is given the results of Run on rank 0 as they come,
	// and Compared those of Compare.
	Result   func(Result)
	Compared func(Comparison)
}

// Sizes that a Config has by default.
const (
	DefaultMinBytes = 8
	DefaultMaxBytes = 64 << 20
	DefaultDuration = 90 * time.Second
)

// elem is the bytes of an element: all vectors are float32.
const elem = 4

// settling is how many barriers are run before anything is measured.
const settling = 10

// Run measures on one rank. It returns an error if an operation fails. Wrong elements are
// no error; results count them.
func Run(ctx context.Context, c *nexar.Comm, cfg Config) error {
	cells, err := cfg.cells(c.Size())
	if err != nil {
		return err
	}
	return each(ctx, c, cfg, cells, func(r *rank, i int, pace pace, share time.Duration) error {
		result, err := r.measure(ctx, cells[i], pace, share)
		if err == nil && c.Rank() == 0 && cfg.Result != nil {
			cfg.Result(result)
		}
		return err
	})
}

// each calls measure for every cell, with its share of the time.
func each(ctx context.Context, c *nexar.Comm, cfg Config, cells []cell, measure func(r *rank, i int, pace pace, share time.Duration) error) error {
	for range settling {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	r := newRank(c, cells)
	pace := pace{end: time.Now().Add(cfg.Duration), fixed: cfg.Runs}
	if cfg.Duration <= 0 {
		pace.end = time.Now().Add(DefaultDuration)
	}
	for i, cell := range cells {
		if c.Rank() == 0 && cfg.Progress != nil {
			cfg.Progress(i, len(cells), cell.op.name, cell.bytes)
		}
		if err := measure(r, i, pace, pace.share(time.Now(), len(cells)-i)); err != nil {
			return err
		}
	}
	return nil
}

// A cell is an operation at one size.
type cell struct {
	op    *op
	bytes int64
}

// cells returns the measurements of cfg, in the same order on every rank.
func (cfg Config) cells(ranks int) ([]cell, error) {
	names := cfg.Ops
	if len(names) == 0 {
		names = Ops()
	}
	factor := cmp.Or(cfg.Factor, 2)
	lo, hi := cfg.MinBytes, cfg.MaxBytes
	if lo == 0 {
		lo = DefaultMinBytes
	}
	if hi == 0 {
		hi = max(lo, DefaultMaxBytes)
	}
	if lo < 0 || hi < lo || factor < 2 {
		return nil, fmt.Errorf("sizes from %d to %d bytes, each %d times the one before: there are none", lo, hi, factor)
	}
	var cells []cell
	for _, name := range names {
		o, err := find(name)
		if err != nil {
			return nil, err
		}
		for _, bytes := range o.sizes(lo, hi, factor, ranks) {
			cells = append(cells, cell{o, bytes})
		}
	}
	return cells, nil
}

// sizes are the sizes at which the operation is measured: lo, each next one by
// factor, and hi; but of whole elements, and as many for every rank if the
// operation cuts its vector by ranks.
func (o *op) sizes(lo, hi, factor int64, ranks int) []int64 {
	if o.empty {
		return []int64{0}
	}
	unit := int64(elem)
	if o.byRank {
		unit *= int64(ranks)
	}
	var list []int64
	for bytes := lo; ; bytes *= factor {
		bytes = min(bytes, hi)
		list = append(list, max(bytes/unit, 1)*unit)
		if bytes == hi || bytes > hi/factor {
			break
		}
	}
	list = append(list, max(hi/unit, 1)*unit)
	return slices.Compact(list)
}
