package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/bench"
	"github.com/nexar-go/nexar/internal/command/internal/launch"
	"github.com/nexar-go/nexar/internal/command/internal/ranks"
	"github.com/nexar-go/nexar/internal/command/internal/report"
	"github.com/nexar-go/nexar/transport"
)

// benchFlags are the flags of nexar bench.
type benchFlags struct {
	count     int
	ops       []string
	min, max  string // max is empty for its default
	factor    int64  // 0 for its default
	transport string
	device    string
	json      string
	iters     int
	duration  time.Duration // 0 for its default

	full, algorithms bool

	hardware Hardware
}

func newBench(s streams, h Hardware) *cobra.Command {
	f := benchFlags{hardware: h}
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure operations, and verify their results",
		Long:  benchLong(h.benchHelp()),
		Example: `  nexar bench -n 4
  nexar bench -n 4 --full
  nexar bench -n 8 --op all_reduce,broadcast --min 64KiB --max 256MiB
  nexar bench --transport mem --json results.jsonl
  nexar bench -n 8 --op all_reduce --algorithms --json algorithms.jsonl
  nexar run -n 2 --seed 10.0.0.1:7946 -- nexar bench --op all_reduce`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := launch.UntilSignal(cmd.Context(), os.Interrupt)
			defer stop()
			// nexar run, or the guard of this process, has warned already.
			if os.Getenv("NEXAR_LOCAL_RANK") == "" && !launch.IsGuarded() {
				warnOfEnv(s.err, cmd.CommandPath())
			}
			err := f.run(ctx, s, cmd.CommandPath(), cmd.Flags().Changed("processes"))
			if err != nil && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		},
	}
	flags, brief, whole := cmd.Flags(), extentOf(false, false), extentOf(true, false)
	flags.SortFlags = false
	flags.IntVarP(&f.count, "processes", "n", 4, "number of ranks")
	flags.StringSliceVar(&f.ops, "op", []string{"all"}, "`operations` to measure, separated by commas, or all")
	flags.StringVar(&f.min, "min", "8", "smallest `size`: 8, 64KiB, 1MB")
	flags.StringVar(&f.max, "max", "", "largest `size` (default "+brief.max+"; "+whole.max+" with --full or --algorithms)")
	flags.BoolVar(&f.full, "full", false, "measure more and larger sizes, for longer")
	flags.BoolVar(&f.algorithms, "algorithms", false, "compare all algorithms of each operation: predicted and measured times")
	flags.Int64Var(&f.factor, "factor", 0, fmt.Sprintf("factor between sizes (default %d; %d with --full)", brief.factor, whole.factor))
	flags.StringVar(&f.transport, "transport", "auto", strings.Join(h.transports(), ", "))
	if len(h.Devices) > 0 {
		flags.StringVar(&f.device, "device", "", "the `kind` of device with the vectors: "+strings.Join(h.devices(), ", ")+" (default: memory of the host)")
	}
	flags.StringVar(&f.json, "json", "", "write results to this `file`; - for standard output, in place of the table")
	flags.IntVar(&f.iters, "iters", 0, "runs of each size, or with --algorithms of each turn (default: as many as --duration allows)")
	flags.DurationVar(&f.duration, "duration", 0, fmt.Sprintf("total time; every size is run at least three times, every algorithm at least seven times (default %v; %v with --full or --algorithms)", brief.duration, whole.duration))
	return cmd
}

// An extent has the defaults of the flags that determine how long the measurement takes.
type extent struct {
	max      string
	factor   int64
	duration time.Duration
}

// extentOf returns the defaults with the flags --full and --algorithms. A comparison of algorithms has few sizes, since each
// takes long.
func extentOf(full, algorithms bool) extent {
	switch {
	case full:
		return extent{"64MiB", 2, bench.DefaultDuration}
	case algorithms:
		return extent{"64MiB", 8, bench.DefaultDuration}
	}
	return extent{"8MiB", 8, 20 * time.Second}
}

// run measures in one of three ways: as a rank of the cluster of NEXAR_SEEDS, with all ranks in this
// process, or with new processes. given reports whether -n was given.
func (f *benchFlags) run(ctx context.Context, s streams, title string, given bool) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	partOfCluster := os.Getenv("NEXAR_SEEDS") != ""
	switch {
	case f.count < 1:
		return usagef("-n %d: must be at least 1", f.count)
	case !slices.Contains(f.hardware.transports(), f.transport):
		elsewhere := ""
		if f.transport == "rdma" {
			elsewhere = "; the command nexar-hw also has rdma (docs/guide/hardware.md)"
		}
		return usagef("--transport %q: want one of %s%s", f.transport, strings.Join(f.hardware.transports(), ", "), elsewhere)
	case f.device != "" && f.hardware.Devices[f.device] == nil:
		return usagef("--device %q: want one of %s", f.device, strings.Join(f.hardware.devices(), ", "))
	case partOfCluster && f.transport == "mem":
		return usagef("--transport mem: cannot be used in a cluster of several processes (NEXAR_SEEDS=%q)", os.Getenv("NEXAR_SEEDS"))
	case partOfCluster:
		return f.join(ctx, s, cfg, given)
	}
	if err := tryFile(f.json); err != nil {
		return err
	}
	if f.transport == "mem" {
		return f.local(ctx, s, cfg)
	}
	self, err := launch.Self()
	if err != nil {
		return err
	}
	return guarded(s, title, launch.DefaultGrace, func(abandoned <-chan struct{}) error {
		return ranks.Run(ctx, ranks.Config{
			Program: append([]string{self}, os.Args[1:]...), Count: f.count, FirstOnly: true,
			Title: title, Stdout: s.out, Stderr: s.err, Abandoned: abandoned,
		})
	})
}

// config returns the measurements to make.
func (f *benchFlags) config() (bench.Config, error) {
	e := extentOf(f.full, f.algorithms)
	largest := cmp.Or(f.max, e.max)
	cfg := bench.Config{Factor: cmp.Or(f.factor, e.factor), Runs: f.iters, Duration: cmp.Or(f.duration, e.duration)}
	all := bench.Ops()
	if f.algorithms {
		all = bench.Collectives()
	}
	for _, name := range f.ops {
		switch {
		case name == "all":
			cfg.Ops = append(cfg.Ops, all...)
		case slices.Contains(all, name):
			cfg.Ops = append(cfg.Ops, name)
		case slices.Contains(bench.Ops(), name):
			return cfg, usagef("--algorithms --op %s: it has only one algorithm", name)
		default:
			return cfg, usagef("--op %q: want one of all, %s", name, strings.Join(bench.Ops(), ", "))
		}
	}
	var err error
	if cfg.MinBytes, err = parseSize("--min", f.min); err != nil {
		return cfg, err
	}
	if cfg.MaxBytes, err = parseSize("--max", largest); err != nil {
		return cfg, err
	}
	switch {
	case cfg.MaxBytes < cfg.MinBytes:
		return cfg, usagef("--max %s: must be at least --min (%s)", largest, f.min)
	case f.factor != 0 && f.factor < 2:
		return cfg, usagef("--factor %d: must be at least 2", f.factor)
	case f.iters < 0:
		return cfg, usagef("--iters %d: must not be negative", f.iters)
	case f.duration < 0:
		return cfg, usagef("--duration %v: must be positive", f.duration)
	}
	return cfg, nil
}

// parseSize parses a size such as 64KiB.
func parseSize(flag, text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	switch {
	case err != nil:
		return 0, usagef("%s %q: %s: want a size such as 8, 64KiB or 1MB", flag, text, sizeProblem(text))
	case n == 0 || n > math.MaxInt64:
		return 0, usagef("%s %q: must be between 1 and %d bytes", flag, text, int64(math.MaxInt64))
	}
	return int64(n), nil
}

// sizeProblem names the part of a malformed size that cannot be parsed.
func sizeProblem(text string) string {
	unit := strings.TrimLeft(text, "0123456789.,")
	switch {
	case text == "":
		return "empty"
	case unit == text:
		r, _ := utf8.DecodeRuneInString(text)
		return fmt.Sprintf("unexpected %q, want a digit", r)
	case unit == "":
		return "malformed number"
	}
	if _, err := humanize.ParseBytes("1" + unit); err == nil {
		return "malformed number"
	}
	return fmt.Sprintf("unknown unit %q", strings.TrimSpace(unit))
}

// tryFile creates an output file, so that errors show before the measurement. The reader of a pipe must not see it end.
func tryFile(name string) error {
	if info, err := os.Stat(name); name == "" || name == "-" || err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return file.Close()
}

// operationTimeout is the default timeout of collectives and barriers: long, since vectors may be as large as memory.
const operationTimeout = 10 * time.Minute

// join joins the cluster of NEXAR_SEEDS and measures as one of its ranks.
func (f *benchFlags) join(ctx context.Context, s streams, cfg bench.Config, given bool) error {
	env, err := nexar.ConfigFromEnv()
	if err != nil {
		return err
	}
	join := nexar.Config{
		CollectiveTimeout: cmp.Or(env.CollectiveTimeout, operationTimeout), BarrierTimeout: cmp.Or(env.BarrierTimeout, operationTimeout),
	}
	if open := f.hardware.Transports[f.transport]; open != nil {
		factory, err := open()
		if err != nil {
			return err
		}
		join.Factories = []transport.Factory{factory}
		join.Transports = []string{f.transport, "tcp", "quic"} // the last two for joining, and for nodes that the first does not connect
	} else if f.transport != "auto" {
		join.Transports = []string{f.transport}
		if f.transport == "tcp" {
			join.Transports = append(join.Transports, "quic") // for control lanes
		}
	}
	node, err := nexar.Join(ctx, join)
	if err != nil {
		return err
	}
	defer node.Close()
	if n := node.World().Size(); given && n != f.count {
		return usagef("-n %d: the cluster has %s; leave -n out", f.count, report.Count(n, "rank"))
	}
	if err := f.checkTransport(node); err != nil {
		return err
	}
	if err := f.measure(ctx, s, cfg, node.World()); err != nil {
		return err
	}
	return f.checkTransport(node)
}

// checkTransport returns an error if a peer is connected over another transport than that of added hardware. A device may be
// missing on the other host, or fail while the ranks measure.
func (f *benchFlags) checkTransport(node *nexar.Node) error {
	if f.hardware.Transports[f.transport] == nil {
		return nil
	}
	for _, p := range node.Peers() {
		if p.Transport != f.transport || p.BulkTransport != f.transport {
			return fmt.Errorf("--transport %s: rank %d is connected over %s, and over %s for payloads; want %s for both: see '%s doctor' on both hosts (%s)",
				f.transport, p.Rank, p.Transport, p.BulkTransport, f.transport, f.hardware.Command, p.Reason)
		}
	}
	return nil
}

// local measures with all ranks in this process.
func (f *benchFlags) local(ctx context.Context, s streams, cfg bench.Config) error {
	comms, err := nexar.Local(ctx, f.count, nexar.Config{CollectiveTimeout: operationTimeout, BarrierTimeout: operationTimeout})
	if err != nil {
		return err
	}
	errs := make([]error, len(comms))
	var all sync.WaitGroup
	for i, c := range comms {
		all.Go(func() {
			errs[i] = errors.Join(f.measure(ctx, s, cfg, c), c.Close())
		})
	}
	all.Wait()
	// One error suffices: usually all have the same cause.
	return cmp.Or(errs...)
}

// measure measures on one rank; rank 0 writes the results.
func (f *benchFlags) measure(ctx context.Context, s streams, cfg bench.Config, c *nexar.Comm) (err error) {
	if open := f.hardware.Devices[f.device]; open != nil {
		var end func() error
		if cfg.Stream, end, err = open(c.LocalRank()); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	run, written := bench.Run, (*show).results
	if f.algorithms {
		run, written = bench.Compare, (*show).comparisons
	}
	if c.Rank() != 0 {
		return run(ctx, c, cfg)
	}
	w, err := newShow(ctx, s, f.hardware.Command+" bench", f.json)
	if err != nil {
		return err
	}
	if f.iters == 0 && w.out != nil {
		more := ""
		if !f.full && !f.algorithms {
			more = fmt.Sprintf("; more and larger sizes with --full, in about %v", extentOf(true, false).duration)
		}
		fmt.Fprintf(w.out, "measuring for about %v%s\n", cfg.Duration, more)
	}
	return written(w, cfg, func(cfg bench.Config) error { return run(ctx, c, cfg) })
}
