package command

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/launch"
	"github.com/nexar-go/nexar/metrics/timeline"
)

// traceFlags are the flags of nexar trace.
type traceFlags struct {
	seed string
	out  string
	time time.Duration
}

const (
	// traceInterval is the time between two polls. A node keeps its last 256 collectives and messages.
	traceInterval = 200 * time.Millisecond
	// traceWait limits the time for an answer of the seed.
	traceWait = 5 * time.Second
)

const traceHelp = `Record the operations of all ranks for some seconds, and write them as a timeline
for https://ui.perfetto.dev (or chrome://tracing), which runs in the browser and
sends the file nowhere. Programs need no preparation.

Each rank is a process of the timeline, with a line for each communicator, its
messages and its calls. A collective that has waited for a rank that began it later
contains "waits for rank 3"; arrows lead from sends to receives. Times are those of
one clock: the offset of each rank is measured, and its name has the error. In a
collective of more than 128 ranks the first one has the details, and the rank that
began last has a line "awaited": 1,000 collectives of 512 ranks take 41 MB.

While the recording runs, the ranks read the clock at the beginning and the end of
each operation, which makes an all-reduce of 8 bytes in shared memory about a tenth
slower. A rank reports at most 128 operations, five times a second; the file and the
last line of the output say how many were not recorded.

The token of the cluster is in NEXAR_CLUSTER_TOKEN or in the file that
NEXAR_CLUSTER_TOKEN_FILE names, as for "nexar status". A file whose name ends with
.gz is compressed, to about a tenth; Perfetto reads it as it is.

EXIT STATUS
  0    the file is complete, also after Ctrl-C; operations may be missing from a
       time in which the seed did not answer
  1    no seed could be reached, or the file could not be written
  2    wrong usage`

func newTrace(s streams) *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use:   "trace [flags]",
		Short: "Record a timeline of all ranks for Perfetto",
		Long:  traceHelp,
		Example: `  Ten seconds of a cluster, with the token of its seed:
    export NEXAR_CLUSTER_TOKEN=...
    nexar trace --seed 10.0.0.1:7946 --time 10s -o run.json.gz`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			ctx, stop := launch.UntilSignal(cmd.Context(), os.Interrupt)
			defer stop()
			return f.run(ctx, s.err)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.seed, "seed", "", seedUsage)
	flags.StringVarP(&f.out, "output", "o", "nexar-trace.json.gz", "`file` to write")
	flags.DurationVar(&f.time, "time", 5*time.Second, "record for so long, or until Ctrl-C")
	return cmd
}

func (f *traceFlags) check() error {
	if f.time <= 0 {
		return usagef("--time %v: must be positive", f.time)
	}
	if f.out == "" {
		return usagef("--output is empty: give the name of a file")
	}
	return checkSeedFlag(f.seed)
}

// run records until the time is over or ctx ends.
func (f *traceFlags) run(ctx context.Context, messages io.Writer) (err error) {
	cfg, query := seedConfig(f.seed), nexar.ClusterQuery{History: true}
	first, err := query.Query(ctx, cfg) // before the file is created
	if err != nil {
		return err
	}
	file, err := create(ctx, f.out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var out io.Writer = file
	if strings.HasSuffix(f.out, ".gz") {
		z := gzip.NewWriter(file)
		defer func() { err = errors.Join(err, z.Close()) }()
		out = z
	}
	w := timeline.NewWriter(out)
	if err := w.Add(first); err != nil {
		return err
	}
	end := time.After(f.time)
	tick := time.NewTicker(traceInterval)
	defer tick.Stop()
	silent := false
	for recording := true; recording; {
		parent, most := ctx, traceWait
		select {
		case <-tick.C:
		case <-end:
			recording = false
		case <-ctx.Done():
			recording = false
		}
		if !recording { // The last operations are still to be asked for.
			parent = context.WithoutCancel(ctx)
			if silent {
				most = time.Second
			}
		}
		asking, cancel := context.WithTimeout(parent, most)
		c, err := query.Query(asking, cfg)
		cancel()
		switch {
		case err == nil:
			silent = false
			if err := w.Add(c); err != nil {
				return err
			}
		case silent || recording && ctx.Err() != nil:
		default:
			silent = true
			fmt.Fprintf(messages, "nexar trace: the seed does not answer, and is asked until the time is over: %v\n", err)
		}
	}
	if silent {
		fmt.Fprintln(messages, "nexar trace: the last operations are missing: the seed has not answered again")
	}
	if err := w.Close(); err != nil {
		return err
	}
	fmt.Fprintf(messages, "nexar trace: %s has %s: open it in https://ui.perfetto.dev\n", f.out, w.Summary())
	return nil
}
