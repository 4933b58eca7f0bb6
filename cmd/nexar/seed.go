package main

import (
	"context"
	"fmt"
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
other hosts, then how many nodes have joined; it ends when all of them have
gone.

The token comes from NEXAR_CLUSTER_TOKEN. Without one, seed makes one and
prints it. A token of your own needs 128 bits at least, unless the seed
listens at a loopback address; "nexar token" makes one.

Nodes reach the seed by UDP, and a TCP connection to the same port lets them
notice its end: let both through your firewall.

With --state-dir the certificate authority of the cluster is kept on disk, so
that a seed that is started again serves the same cluster.

EXIT STATUS
  0  the world formed and all nodes have gone, or a signal ended the seed
  1  the world did not form, or the seed could not be started
  2  nexar seed was called wrongly`,
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
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.run(ctx, s)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.listen, "listen", ":0", "`host:port` at which nodes reach the seed; port 0 is any")
	flags.IntVar(&f.world, "world", 0, "number of nodes to admit")
	flags.StringVar(&f.stateDir, "state-dir", "", "keep the cluster's certificate authority in this `directory` (default: in memory)")
	flags.DurationVar(&f.formTimeout, "form-timeout", 5*time.Minute, "how long the nodes may take to come together; less than 0 is for ever")
	flags.StringVar(&f.logLevel, "log-level", "info", "what to write to standard error: debug, info, warn or error")
	return cmd
}

// run serves until all nodes have gone, or ctx ends.
func (f *seedFlags) run(ctx context.Context, s streams) error {
	if f.world < 1 {
		return usagef("--world %d: say how many nodes the cluster has", f.world)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return usagef("--log-level %q: not one of debug, info, warn, error", f.logLevel)
	}
	token, made := os.Getenv("NEXAR_CLUSTER_TOKEN"), false
	if token == "" {
		token, made = nexar.NewToken(), true
	}
	// The seed tells of joins while this goroutine waits; they are written by
	// this one alone, so that lines stay in order.
	joins := make(chan int, f.world+1)
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: f.listen, World: f.world, Token: token, StateDir: f.stateDir, FormTimeout: f.formTimeout,
		Log: slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level})),
		Progress: func(joined, _ int) {
			select {
			case joins <- joined:
			default: // A number that is out of date by now.
			}
		},
	})
	if err != nil {
		return err
	}
	defer seed.Close()

	printInstructions(s, seed.Addr(), f.world, token, made)
	return follow(ctx, s, seed, f.world, joins)
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

// follow prints how the world forms and ends. A ctx that ends is the user's
// wish, not a failure.
func follow(ctx context.Context, s streams, seed *nexar.Seed, world int, joins <-chan int) error {
	waiting, stop := context.WithCancel(ctx)
	formed := make(chan error, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() { formed <- seed.Wait(waiting) })
	defer waiter.Wait()
	defer stop()

	last := 0
	joined := func(n int) {
		last = n
		fmt.Fprintf(s.out, "%d of %s joined\n", n, nodes(world))
	}
	for {
		select {
		case n := <-joins:
			joined(n)
			continue
		case err := <-formed:
			if ctx.Err() == nil && err != nil {
				return err
			}
		case <-ctx.Done():
		}
		break
	}
	if ctx.Err() == nil {
		if last < world {
			joined(world) // The seed tells of a join a moment later.
		}
		fmt.Fprintf(s.out, "world of %d formed\n", world)
	}
	select {
	case <-seed.Done():
		fmt.Fprintln(s.out, "all nodes have gone")
	case <-ctx.Done():
		fmt.Fprintln(s.out, "ended by a signal")
	}
	return nil
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
