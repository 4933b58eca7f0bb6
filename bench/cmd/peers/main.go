// Command peers compares nexar for Go with other systems and writes docs/results.md. README.md of
// this module describes it, and "make bench-peers" calls it.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/bench/campaign"
	"github.com/nexar-go/nexar/bench/results"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "peers: %v\n", err)
		os.Exit(1)
	}
}

// flags are the flags of the command.
type flags struct {
	bench, raw, docs string
	settings         []campaign.Setting
	campaign         campaign.Campaign
	pageOnly         bool
}

func parse(args []string, stderr io.Writer) (flags, error) {
	f := flags{settings: campaign.Settings(runtime.NumCPU())}
	set := flag.NewFlagSet("peers", flag.ContinueOnError)
	set.SetOutput(stderr)
	names := set.String("settings", "", "`settings` to measure, separated by commas: "+strings.Join(campaign.Names(f.settings), ", ")+" (default all)")
	sizes := set.String("sizes", "8,1KiB,16KiB,128KiB,1MiB,8MiB", "`sizes` to measure, separated by commas")
	ops := set.String("ops", "", "`operations` to measure, separated by commas (default all)")
	systems := set.String("systems", "", "`systems` to measure, separated by commas, by their names in the raw files (default all)")
	set.Float64Var(&f.campaign.Schedule.Budget, "budget", 0.05, "`seconds` for one operation at one size in one turn")
	set.IntVar(&f.campaign.Rounds, "rounds", 12, "`number` of rounds; each system has a turn for each operation in a round")
	set.DurationVar(&f.campaign.Timeout, "timeout", time.Minute, "maximum `time` of one turn of one system")
	set.StringVar(&f.bench, "bench", ".", "`folder` of this module")
	set.StringVar(&f.raw, "raw", "", "`folder` of the raw data (default .build/results)")
	set.StringVar(&f.docs, "docs", "", "`folder` of results.md and its drawings (default ../docs)")
	set.BoolVar(&f.pageOnly, "page", false, "measure nothing, and write the page from the existing raw files")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	if set.NArg() > 0 {
		return f, fmt.Errorf("arguments %q: peers takes only flags", set.Args())
	}
	f.raw = cmp.Or(f.raw, filepath.Join(f.bench, ".build", "results"))
	f.docs = cmp.Or(f.docs, filepath.Join(f.bench, "..", "docs"))
	return f, f.choose(*names, *sizes, *ops, *systems)
}

// choose keeps the named settings, sizes, operations and systems. An empty list keeps all.
func (f *flags) choose(names, sizes, ops, systems string) (err error) {
	if names != "" {
		if f.settings, err = campaign.Find(f.settings, strings.Split(names, ",")); err != nil {
			return err
		}
	}
	if f.campaign.Schedule.Sizes, err = campaign.ParseSizes(sizes); err != nil {
		return err
	}
	for i := range f.settings {
		s := &f.settings[i]
		if ops != "" {
			wanted := strings.Split(ops, ",")
			s.Ops = slices.DeleteFunc(s.Ops, func(op string) bool { return !slices.Contains(wanted, op) })
		}
		if systems != "" {
			wanted := strings.Split(systems, ",")
			s.Systems = slices.DeleteFunc(s.Systems, func(s campaign.System) bool { return !slices.Contains(wanted, s.Name) })
		}
	}
	f.settings = slices.DeleteFunc(f.settings, func(s campaign.Setting) bool { return len(s.Ops) == 0 || len(s.Systems) == 0 })
	switch {
	case len(f.settings) == 0:
		return fmt.Errorf("-ops %q, -systems %q: no selected setting has these operations and systems", ops, systems)
	case f.campaign.Rounds < 1:
		return fmt.Errorf("-rounds %d: must be at least 1", f.campaign.Rounds)
	case f.campaign.Schedule.Budget <= 0:
		return fmt.Errorf("-budget %v: must be positive", f.campaign.Schedule.Budget)
	case f.campaign.Timeout <= 0:
		return fmt.Errorf("-timeout %v: must be positive", f.campaign.Timeout)
	}
	return nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	f, err := parse(args, progress)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.raw, 0o755); err != nil {
		return err
	}
	if !f.pageOnly {
		if err := f.measure(ctx, progress); err != nil {
			return err
		}
	}
	files, err := results.ReadAll(f.raw, campaign.Names(campaign.Settings(runtime.NumCPU())))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: no raw files (*%s); run without -page to measure", f.raw, results.Suffix)
	}
	page := filepath.Join(f.docs, "results.md")
	if err := results.WritePage(page, files); err != nil {
		return err
	}
	fmt.Fprintln(out, page)
	return nil
}

// measure measures all settings and writes their raw files. A setting that cannot be measured is
// noted and skipped.
func (f *flags) measure(ctx context.Context, progress io.Writer) error {
	programs, err := campaign.Build(ctx, f.bench, f.settings, func(step string) {
		fmt.Fprintln(progress, step)
	})
	if err != nil {
		return err
	}
	for name, why := range programs.Missing {
		fmt.Fprintf(progress, "missing: %s: %s\n", name, why)
	}
	turns, begun, began := 0, 0, time.Now()
	for _, s := range f.settings {
		turns += f.campaign.Turns(s)
	}
	f.campaign.Programs = programs
	f.campaign.Progress = func(setting, system, op string, round int) {
		begun++
		fmt.Fprintf(progress, "%6s  %d/%d  %s, round %d, %s: %s\n", time.Since(began).Round(time.Second), begun, turns, setting, round, op, system)
	}
	f.campaign.Note = func(text string) { fmt.Fprintln(progress, text) }
	for _, s := range f.settings {
		file, err := f.campaign.Measure(ctx, s)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			f.campaign.Note(err.Error())
			continue
		}
		if err := file.Write(filepath.Join(f.raw, s.Name+results.Suffix)); err != nil {
			return err
		}
	}
	return nil
}
