package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar/internal/command/internal/launch"
	"github.com/nexar-go/nexar/internal/command/internal/report"
	"github.com/nexar-go/nexar/simulate"
)

// simulateFlags are the flags of nexar simulate.
type simulateFlags struct {
	ranks      []int
	ops        []string
	algorithms []string
	root       int
	min, max   string
	factor     int64
	channels   int
	fullMax    int
	model      string
	json       string

	machine machineFlags
}

func newSimulate(s streams) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [flags]",
		Short: "Predict the time of collectives of up to a million ranks",
		Long:  simulateLong,
		Example: `  nexar simulate -n 1024
  nexar simulate -n 1024 --topology fat-tree:32:4 --min 1MiB --max 1GiB --json fat-tree.jsonl
  nexar simulate -n 4096 --topology torus:16x16x16 --op all_reduce --algorithm ring,circulant
  nexar simulate -n 1000000 --algorithm recursive-doubling --min 8 --max 8
  nexar simulate -n 128 --model machine.json --json -`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := launch.UntilSignal(cmd.Context(), os.Interrupt)
			defer stop()
			err := readModel(ctx, cmd.Flags(), f.model)
			if err == nil {
				err = f.run(ctx, s, cmd.CommandPath())
			}
			if err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntSliceVarP(&f.ranks, "ranks", "n", []int{1024}, "`numbers` of ranks, separated by commas")
	flags.StringSliceVar(&f.ops, "op", []string{"all_reduce"}, "`collectives`, separated by commas, or all")
	flags.StringSliceVar(&f.algorithms, "algorithm", []string{"all"}, "`algorithms`, separated by commas, or all")
	flags.IntVar(&f.root, "root", 0, "root of collectives that have one")
	flags.StringVar(&f.min, "min", "8", "smallest `size`: 8, 64KiB, 1MB")
	flags.StringVar(&f.max, "max", "16MiB", "largest `size`")
	flags.Int64Var(&f.factor, "factor", 8, "factor between sizes")
	flags.IntVar(&f.channels, "channels", 1, "`number` of parallel runs of the algorithm, each on a slice of the vector")
	flags.IntVar(&f.fullMax, "full-max", 256, "largest number of ranks of rings that are simulated in full")
	flags.StringVar(&f.model, "model", "", "read the machine from this `file`")
	f.machine.add(flags)
	flags.StringVar(&f.json, "json", "", "write results to this `file`; - for standard output, in place of the table")
	return cmd
}

// A simulation is one table row: an operation of one size, with all algorithms.
type simulation struct {
	op         string
	ranks      int
	channels   int
	bytes      int64
	algorithms []string
}

// run simulates all operations and sizes.
func (f *simulateFlags) run(ctx context.Context, s streams, title string) error {
	model, err := f.machine.model()
	if err != nil {
		return err
	}
	list, err := f.plan(model)
	if err != nil {
		return err
	}
	w, err := newShow(ctx, s, title, f.json)
	if err != nil {
		return err
	}
	return w.simulations(list, func(add func(report.Simulation)) error {
		for i, one := range list {
			got, err := f.simulate(ctx, model, one, func(part float64) {
				w.progress(int(1000*(float64(i)+part)), 1000*len(list), one.op, one.bytes)
			})
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				return err
			}
			add(got)
		}
		return nil
	})
}

// plan returns the simulations to run.
func (f *simulateFlags) plan(model simulate.Model) (list []simulation, err error) {
	least, err := parseSize("--min", f.min)
	if err != nil {
		return nil, err
	}
	most, err := parseSize("--max", f.max)
	switch {
	case err != nil:
		return nil, err
	case most < least:
		return nil, usagef("--max %s: must be at least --min (%s)", f.max, f.min)
	case f.factor < 2:
		return nil, usagef("--factor %d: must be at least 2", f.factor)
	case f.channels < 1 || f.channels > channelsMax:
		return nil, usagef("--channels %d: must be between 1 and %d", f.channels, channelsMax)
	case f.fullMax < 1:
		return nil, usagef("--full-max %d: must be at least 1", f.fullMax)
	}
	ops := f.ops
	if slices.Contains(ops, "all") {
		ops = simulate.Collectives()
	}
	for _, op := range ops {
		for _, ranks := range f.ranks {
			if ranks < 1 || ranks > ranksMax {
				return nil, usagef("--ranks %d: must be between 1 and %d", ranks, ranksMax)
			}
			if f.root < 0 || f.root >= ranks {
				return nil, usagef("--root %d: must be a rank below %d", f.root, ranks)
			}
			if err := model.Check(ranks); err != nil {
				return nil, &usageError{withoutKind(err)}
			}
			algorithms, err := f.choose(model, op, ranks)
			if err != nil {
				return nil, err
			}
			for bytes := least; ; bytes *= f.factor {
				one := simulation{op: op, ranks: ranks, channels: f.channels, bytes: bytes, algorithms: algorithms}
				if op == "barrier" {
					one.bytes, one.channels = 0, 1
				}
				list = append(list, one)
				if op == "barrier" || bytes > most/f.factor {
					break
				}
			}
		}
	}
	return list, nil
}

// ranksMax and channelsMax are the largest numbers of ranks and of channels of a simulation.
const (
	ranksMax    = 1 << 24
	channelsMax = 1 << 10
)

// choose returns the algorithms of an operation that --algorithm selects.
func (f *simulateFlags) choose(model simulate.Model, op string, ranks int) ([]string, error) {
	all, err := model.Algorithms(op, ranks)
	if err != nil {
		return nil, usagef("--op %q: want one of all, %s", op, strings.Join(simulate.Collectives(), ", "))
	}
	if slices.Contains(f.algorithms, "all") {
		return all, nil
	}
	for _, name := range f.algorithms {
		if !slices.Contains(all, name) {
			return nil, usagef("--algorithm %q: want one of those of %s for %d ranks: all, %s", name, op, ranks, strings.Join(all, ", "))
		}
	}
	return f.algorithms, nil
}

// withoutKind returns the error that an invalid simulation has wrapped.
func withoutKind(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), simulate.ErrInvalid.Error()+": "))
}

// parallelMax limits simulations in parallel: with more ranks, memory may not suffice for several
// algorithms at once.
const parallelMax = 1 << 18

// Unless they were named, algorithms with more moves of all ranks are left out: a simulation of all algorithms takes seconds for up to
// thousands of ranks, and direct exchanges between all of them would take minutes.
const (
	movesMax    = 1 << 20
	movesOfRank = 64
)

// simulate runs all algorithms of one simulation. Unless they were named, algorithms with too many
// moves are left out. progress gets the part that is done, from 0 to 1.
func (f *simulateFlags) simulate(ctx context.Context, model simulate.Model, one simulation, progress func(part float64)) (report.Simulation, error) {
	workers := min(runtime.GOMAXPROCS(0), len(one.algorithms))
	if one.ranks > parallelMax {
		workers = 1
	}
	var (
		results = make([]simulate.Result, len(one.algorithms))
		errs    = make([]error, len(one.algorithms))
		parts   = make([]float64, len(one.algorithms))
		next    atomic.Int64
		mu      sync.Mutex
		all     sync.WaitGroup
	)
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(one.algorithms); i = int(next.Add(1)) - 1 {
				call := simulate.Call{Collective: one.op, Algorithm: one.algorithms[i], Ranks: one.ranks, Root: f.root, Bytes: int(one.bytes), Channels: one.channels, FullRingMax: f.fullMax}
				if slices.Contains(f.algorithms, "all") {
					call.MovesMax = max(movesMax, movesOfRank*one.ranks)
				}
				results[i], errs[i] = simulate.Run(ctx, model, call, func(done, rounds int64) {
					mu.Lock()
					defer mu.Unlock()
					parts[i] = float64(done) / float64(max(rounds, 1))
					sum := 0.0
					for _, p := range parts {
						sum += p
					}
					progress(sum / float64(len(parts)))
				})
			}
		})
	}
	all.Wait()
	var got report.Simulation
	for i, r := range results {
		switch {
		case errors.Is(errs[i], simulate.ErrTooLarge) && slices.Contains(f.algorithms, "all"):
			got.Left = append(got.Left, withoutKind(errs[i]).Error())
		case errs[i] != nil:
			return got, withoutKind(errs[i])
		default:
			got.Predictions = append(got.Predictions, report.Prediction{
				Op: one.op, Ranks: one.ranks, Bytes: one.bytes, Topology: f.machine.topology, Algorithm: one.algorithms[i], Channels: one.channels,
				Micros: float64(r.Time) / float64(time.Microsecond), Messages: r.Messages, Sent: r.Bytes,
				BusiestLink: r.BusiestLink, BusiestBytes: r.BusiestBytes, Symmetric: r.Symmetric,
			})
		}
	}
	if len(got.Predictions) == 0 {
		return got, fmt.Errorf("no algorithm of %s can be simulated: %s", one.op, strings.Join(got.Left, "; "))
	}
	got.MarkBest()
	return got, nil
}
