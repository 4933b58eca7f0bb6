// Package bench measures the operations of a communicator and verifies every
// result.
//
// Call Run on every rank with the same Config, or Compare to measure every algorithm
// of each operation and compare it with the prediction of the cost model. Rank 0
// decides the number of repetitions and gets the results.
//
// Before every run of an operation the ranks make a barrier; then each rank measures
// its own time. Results are the largest median and the largest 99th percentile of all
// ranks. Elements depend on their position and rank, and are small integers: sums of
// float32 are exact in any order, so every element has one right value.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// Config selects the measurements. It is the same on every rank.
type Config struct {
	Ops      []string      // names from Ops; nil means all
	MinBytes int64         // smallest size of a vector; 8 by default
	MaxBytes int64         // largest size; 64 MiB by default
	Factor   int64         // between sizes; 2 by default
	Runs     int           // runs of each size or, in Compare, of each turn; 0 means as many as Duration allows
	Duration time.Duration // total time; 90 seconds by default. Every size is measured, even if that takes longer

	// Stream, if not nil, is a stream of the device that has the vectors of this rank. Other ranks may have other devices, or none.
	Stream device.Stream

	// Progress, if not nil, is called on rank 0 before each measurement, with the number
	// of completed measurements and of all.
	Progress func(done, all int, op string, bytes int64)
	// Result and Compared, if not nil, are called on rank 0 with each result of Run and
	// of Compare.
	Result   func(Result)
	Compared func(Comparison)
}

// Defaults of Config.
const (
	DefaultMinBytes = 8
	DefaultMaxBytes = 64 << 20
	DefaultDuration = 90 * time.Second
)

// elem is the size of an element in bytes: all vectors are float32.
const elem = 4

// warmupBarriers is the number of barriers before the first measurement.
const warmupBarriers = 10

// Run measures operations. Every rank calls it. It returns an error if an operation fails;
// wrong elements are counted in the results and are no error.
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

// each calls measure for every cell, with the time for it.
func each(ctx context.Context, c *nexar.Comm, cfg Config, cells []cell, measure func(r *rank, i int, pace pace, share time.Duration) error) error {
	for range warmupBarriers {
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	r := newRank(c, cells)
	if err := r.open(ctx, cfg.Stream); err != nil {
		return err
	}
	pace := pace{end: time.Now().Add(cfg.Duration), fixed: cfg.Runs}
	if cfg.Duration <= 0 {
		pace.end = time.Now().Add(DefaultDuration)
	}
	for i, cell := range cells {
		if c.Rank() == 0 && cfg.Progress != nil {
			cfg.Progress(i, len(cells), cell.op.name, cell.bytes)
		}
		if err := measure(r, i, pace, pace.share(time.Now(), len(cells)-i)); err != nil {
			return errors.Join(err, r.close())
		}
	}
	return r.close()
}

// A cell is one operation at one size: a cell of the table of results.
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

// sizes returns the sizes at which the operation is measured: lo, lo·factor and so on, and
// hi. Each is rounded to whole elements or, if the vector is divided among the ranks, to
// blocks of equal length.
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
