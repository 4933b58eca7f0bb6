package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
)

// A seedFlags is what nexar seed is told.
type seedFlags struct {
	listen      string
	world       int
	elastic     bool
	min, max    int
	stateDir    string
	formTimeout time.Duration
	logLevel    string
}

func newSeed(s streams) *cobra.Command {
	var f seedFlags
	cmd := &cobra.Command{
		Use:   "seed --world COUNT [flags]",
		Short: "Admit the nodes of a cluster",
		Long: `Seed admits COUNT nodes to a cluster, gives them their ranks, and makes them
known to each other. No data goes through it. It prints what to set on the
other hosts, then a line for each node that joins or goes; it ends when all of
them have gone.

The token comes from NEXAR_CLUSTER_TOKEN. Without one, seed makes one and
prints it. A token of your own needs 128 bits at least, unless the seed
listens at a loopback address; "nexar token" makes one.

Nodes reach the seed by UDP, and a TCP connection to the same port lets them
notice its end: let both through your firewall.

With --elastic, nodes may join the world after it has formed: they are in it
after the next checkpoint of the others (Node.Checkpoint), as long as there are
no more than --max. If nodes fail and fewer than --min are left, these wait for
others. Spares (NEXAR_SPARE=1) may join any world, and replace nodes that have
gone.

With --state-dir the certificate authority of the cluster is kept on disk, so
that a seed that is started again serves the same cluster.

EXIT STATUS
  0      the world formed and all nodes have gone
  1      the world did not form, or the seed could not be started
  2      nexar seed was called wrongly
  128+N  signal N ended the seed (Ctrl-C: 130). A world that has formed goes
         on without it`,
		Example: `  A cluster of four nodes, two on each of two hosts. On 10.0.0.1:
    export NEXAR_CLUSTER_TOKEN=$(nexar token)
    nexar seed --listen :7000 --world 4 &
    nexar run -n 2 --seed 10.0.0.1:7000 -- ./train

  and on 10.0.0.2, with the same token:
    nexar run -n 2 --seed 10.0.0.1:7000 -- ./train`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Ctrl-C and a service manager's request both end the seed in
			// good order.
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
			defer signal.Stop(signals)
			return f.run(cmd.Context(), s, signals)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.listen, "listen", ":0", "`host:port` at which nodes reach the seed; port 0 is any")
	flags.IntVar(&f.world, "world", 0, "number of nodes to admit")
	flags.BoolVar(&f.elastic, "elastic", false, "let nodes join after the world has formed")
	flags.IntVar(&f.min, "min", 0, "fewest nodes of an elastic world (default 1)")
	flags.IntVar(&f.max, "max", 0, "most nodes of an elastic world (default: no limit)")
	flags.StringVar(&f.stateDir, "state-dir", "", "keep the cluster's certificate authority in this `directory` (default: in memory)")
	flags.DurationVar(&f.formTimeout, "form-timeout", 5*time.Minute, "how long the nodes may take to come together; less than 0 is for ever")
	flags.StringVar(&f.logLevel, "log-level", "warn", "what to write to standard error: debug, info, warn or error")
	return cmd
}

// run serves until all nodes have gone, or a signal comes.
func (f *seedFlags) run(ctx context.Context, s streams, signals <-chan os.Signal) error {
	level, err := f.check()
	if err != nil {
		return err
	}
	token, made := os.Getenv("NEXAR_CLUSTER_TOKEN"), false
	if token == "" {
		token, made = nexar.NewToken(), true
	}
	warnOfEnv(s.err, "nexar seed")
	// Lines are written by this goroutine alone, so that they stay in order.
	ctx, stop := context.WithCancel(ctx)
	events := make(chan nexar.SeedEvent)
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: f.listen, World: f.world, Elastic: f.elastic, ElasticMin: f.min, ElasticMax: f.max,
		Token: token, StateDir: f.stateDir, FormTimeout: f.formTimeout,
		Log: slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level})),
		Progress: func(e nexar.SeedEvent) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		},
	})
	if err != nil {
		stop()
		return err
	}
	defer seed.Close()
	defer stop()

	printInstructions(s, seed.Addr(), f.world, token, made)
	return follow(ctx, s.out, seed, f.world, events, signals)
}

func (f *seedFlags) check() (level slog.Level, err error) {
	switch {
	case f.world == 0:
		return level, usagef("--world is missing: say how many nodes the cluster has, for example: nexar seed --world 4")
	case f.world < 0:
		return level, usagef("--world %d: a cluster has one node at least", f.world)
	}
	if err := checkElastic(f.elastic, true, f.min, f.max, f.world); err != nil {
		return level, err
	}
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return level, usagef("--log-level %q: not one of debug, info, warn, error", f.logLevel)
	}
	return level, nil
}

// printInstructions says what to run on the other hosts.
func printInstructions(s streams, addr string, world int, token string, made bool) {
	fmt.Fprintf(s.out, "seed for %s at %s\n\nOn the other hosts, set:\n\n  export NEXAR_SEEDS=%s\n", nodes(world), addr, addr)
	if made {
		fmt.Fprintf(s.out, "  export NEXAR_CLUSTER_TOKEN=%s\n", token)
	} else {
		fmt.Fprintln(s.out, "  export NEXAR_CLUSTER_TOKEN=...   (the same as here)")
	}
	fmt.Fprintf(s.out, "\nand start the program, or several ranks of it:\n\n  nexar run -n 2 --seed %s -- PROGRAM\n\n", addr)
}

// follow prints how the world forms and ends.
func follow(ctx context.Context, out io.Writer, seed *nexar.Seed, world int, events <-chan nexar.SeedEvent, signals <-chan os.Signal) error {
	waiting, stop := context.WithCancel(ctx)
	verdict := make(chan error, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() { verdict <- seed.Wait(waiting) })
	defer waiter.Wait()
	defer stop()

	formed, full := false, false
	print := func(e nexar.SeedEvent) {
		full = full || e.Joined == world
		fmt.Fprintln(out, describe(e))
	}
	hasFormed := func() {
		for !full {
			print(<-events) // The seed tells of a join a moment later.
		}
		formed = true
		fmt.Fprintf(out, "the world of %s has formed\n", nodes(world))
	}
	for {
		select {
		case e := <-events:
			print(e)
		case err := <-verdict:
			if err != nil {
				return err
			}
			hasFormed()
		case <-seed.Done():
			if !formed {
				if err := <-verdict; err != nil {
					return err
				}
				hasFormed()
			}
			fmt.Fprintln(out, "all nodes have gone")
			return nil
		case sig := <-signals:
			fmt.Fprintf(out, "ended by a signal: %v\n", sig)
			return statusError(signalStatus(sig))
		}
	}
}

// describe says who has joined or gone, in a line.
func describe(e nexar.SeedEvent) string {
	who := fmt.Sprintf("%s at %s", e.Name, e.Addr)
	if e.Rank >= 0 {
		who = fmt.Sprintf("rank %d, %s,", e.Rank, who)
	}
	there := fmt.Sprintf("%d of %s", e.Joined, nodes(e.World))
	if e.Joined > e.World {
		there = fmt.Sprintf("%d, %d of them beyond the world of %s", e.Joined, e.Joined-e.World, nodes(e.World))
	}
	switch {
	case e.Left:
		return fmt.Sprintf("%s has left (%s still there)", who, there)
	case e.Gone:
		return fmt.Sprintf("%s is gone: %s (%s still there)", who, e.Reason, there)
	}
	return fmt.Sprintf("%s has joined (%s)", who, there)
}

// signalStatus is the exit status of a program that a signal has ended, as
// shells have it.
func signalStatus(sig os.Signal) int {
	if n, ok := sig.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return statusFailed
}

// warnOfEnv tells of variables that are misspelt.
func warnOfEnv(w io.Writer, title string) {
	for _, p := range nexar.UnknownEnv(os.Environ()) {
		fmt.Fprintf(w, "%s: note: %s: %s\n", title, p.What, p.Mend)
	}
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
