package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/trace"
)

// A statusFlags is what nexar status is told.
type statusFlags struct {
	seed  string
	json  bool
	watch time.Duration
}

const statusHelp = `Status asks the seed of a cluster where all its nodes are: in which operation
each is and since when, which ranks it waits for, and who is late, for which
others wait. It is for a cluster that hangs, or seems to: nothing in it is
disturbed, and no node needs to have been started in a certain way.

The token of the cluster is in NEXAR_CLUSTER_TOKEN, as for its nodes. "nexar
seed" prints it, unless it was given one. "nexar run" makes one that nobody
else has, unless NEXAR_CLUSTER_TOKEN is set: then it says how to ask for the
status of its ranks.

The table has a line for each operation that a rank is in:

  IN         the operation, the how many-th of its communicator, and its vector
  COMM       the communicator; 1 is the first world
  FOR        how long it has been under way
  ROUND      the first part that has not ended, and how many there are
  WAITS FOR  the ranks from which something is missing

Below it stands who is late: a rank that others wait for, be it through others,
and that itself waits for nobody; and which ranks have called different
operations, or wait for each other in a circle. If a rank waits for data that
another one has sent and that has not arrived, the link is named in place of a
circle, with the bytes sent and received. Nodes without a
snapshot come last, with the reason: such as one that does not answer the seed
within 2 seconds, as its process was stopped, or its host is gone.

JSON is one object: formed, epoch (0 as long as nodes are missing), world (nodes
with which the world forms), joined, waiting (nodes that wait for a place), time,
and nodes. Each has rank (-1: none), node, name, addr, and either snapshot, as
Node.Trace has it, or missing, which says why there is none. With --watch there
is an object a line.

EXIT STATUS
  0    the seed has answered
  1    no seed could be reached, or it has refused: wrong token, the world did
       not form
  2    nexar status was called wrongly
  130  Ctrl-C has ended it`

func newStatus(s streams) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Say where all nodes of a cluster are, and who is late",
		Long:  statusHelp,
		Example: `  A cluster of several hosts, with the token of its seed:
    export NEXAR_CLUSTER_TOKEN=...
    nexar status --seed 10.0.0.1:7000
    nexar status --seed 10.0.0.1:7000 --watch 2s

  Ranks of this host:
    export NEXAR_CLUSTER_TOKEN=$(nexar token)
    nexar run -n 4 -- ./train
  and, with the same token, what nexar run has said:
    nexar status --seed 127.0.0.1:40123

  Ranks that have been in something for more than a minute:
    nexar status --json | jq '.nodes[]
      | select(.snapshot.operations[]? | .outcome == null and .seconds > 60) | .rank'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			err := f.run(ctx, s.out)
			if ctx.Err() != nil {
				return statusError(signalStatus(os.Interrupt))
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.seed, "seed", "", "`address` of the seed, or several separated by commas (default: NEXAR_SEEDS)")
	flags.BoolVar(&f.json, "json", false, "write JSON")
	flags.DurationVar(&f.watch, "watch", 0, "ask again at this `interval`, until Ctrl-C")
	return cmd
}

func (f *statusFlags) check() error {
	switch {
	case f.seed == "" && os.Getenv("NEXAR_SEEDS") == "":
		return usagef("--seed is missing: give the address of the seed, or set NEXAR_SEEDS")
	case f.watch < 0:
		return usagef("--watch %v: less than no time", f.watch)
	case f.seed != "":
		return checkAddrs(f.seed)
	}
	return nil
}

// checkAddrs checks the addresses of --seed.
func checkAddrs(list string) error {
	for addr := range strings.SplitSeq(list, ",") {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
			return usagef("--seed %q: not an address of the form host:port", addr)
		}
	}
	return nil
}

// run asks once, or until ctx ends.
func (f *statusFlags) run(ctx context.Context, w io.Writer) error {
	var cfg nexar.Config
	if f.seed != "" {
		cfg.Seeds = strings.Split(f.seed, ",")
	}
	for {
		status, err := nexar.QueryCluster(ctx, cfg)
		if err != nil {
			return err
		}
		if err := f.write(w, status); err != nil || f.watch == 0 {
			return err
		}
		select {
		case <-time.After(f.watch):
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *statusFlags) write(w io.Writer, status trace.Cluster) error {
	if f.json {
		out := json.NewEncoder(w)
		if f.watch == 0 {
			out.SetIndent("", "  ")
		}
		return out.Encode(status)
	}
	if f.watch > 0 {
		if _, err := fmt.Fprintf(w, "%s\n", status.Time.Format("15:04:05")); err != nil {
			return err
		}
	}
	_, err := status.WriteTo(w)
	if f.watch > 0 && err == nil {
		_, err = fmt.Fprintln(w)
	}
	return err
}
