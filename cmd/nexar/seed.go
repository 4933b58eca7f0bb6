package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
)

// A seedFlags is what nexar seed is told.
type seedFlags struct {
	peerFlags
	world       int
	elastic     bool
	min, max    int
	formTimeout time.Duration
	logLevel    string
}

func newSeed(s streams) *cobra.Command {
	var f seedFlags
	cmd := &cobra.Command{
		Use:     "seed --world COUNT [flags]",
		Short:   "Admit the nodes of a cluster",
		Long:    seedHelp,
		Example: seedExample,
		Args:    noArgs,
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
	flags.StringVar(&f.listen, "listen", "", "`host:port` at which nodes reach the seed; port 0 is any (default \":0\", or the port of this seed in --peers)")
	flags.IntVar(&f.world, "world", 0, "number of nodes to admit")
	flags.BoolVar(&f.elastic, "elastic", false, "let nodes join after the world has formed")
	flags.IntVar(&f.min, "min", 0, "fewest nodes of an elastic world (default 1)")
	flags.IntVar(&f.max, "max", 0, "most nodes of an elastic world (default: no limit)")
	f.definePeers(cmd)
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
	token, made, err := f.token()
	if err != nil {
		return err
	}
	peerToken, err := f.peerToken()
	if err != nil {
		return err
	}
	if len(f.peers) > 0 {
		if err := checkToken(); err != nil {
			return err
		}
	}
	warnOfEnv(s.err, "nexar seed")
	// Lines are written by this goroutine alone, so that they stay in order.
	ctx, stop := context.WithCancel(ctx)
	events := make(chan nexar.SeedEvent)
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: f.listen, World: f.world, Elastic: f.elastic, ElasticMin: f.min, ElasticMax: f.max,
		Token: token, StateDir: f.stateDir, ForgetState: f.forget, Consensus: raft.Open, Peers: f.peers, PeerToken: peerToken, Advertise: f.advertise, FormTimeout: f.formTimeout,
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

	addrs := seed.Addr()
	if len(f.peers) > 0 {
		addrs = strings.Join(f.peers, ",")
	}
	printInstructions(s, seed.Addr(), addrs, f.world, token, made)
	return follow(ctx, s.out, seed, f, events, signals)
}

func (f *seedFlags) check() (level slog.Level, err error) {
	switch {
	case f.world == 0:
		return level, usagef("--world is missing: say how many nodes the cluster has, for example: nexar seed --world 4")
	case f.world < 0:
		return level, usagef("--world %d: a cluster has one node at least", f.world)
	}
	if err := f.checkPeers(); err != nil {
		return level, err
	}
	if f.stateDir != "" && strings.HasSuffix(f.listen, ":0") {
		return level, usagef("--state-dir needs --listen with a port: nodes look for a seed that is started again where it was")
	}
	if err := checkElastic(f.elastic, true, f.min, f.max, f.world); err != nil {
		return level, err
	}
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return level, usagef("--log-level %q: not one of debug, info, warn, error", f.logLevel)
	}
	return level, nil
}

// token is that of the cluster, and whether this command has made it. A seed that is
// started again finds the one that it has made in its directory.
func (f *seedFlags) token() (token string, made bool, err error) {
	if token = os.Getenv("NEXAR_CLUSTER_TOKEN"); token != "" || f.stateDir == "" {
		return cmp.Or(token, nexar.NewToken()), token == "", nil
	}
	path := filepath.Join(f.stateDir, "token")
	if b, err := os.ReadFile(path); err == nil {
		if token = strings.TrimSpace(string(b)); token == "" {
			return "", false, fmt.Errorf("%s is empty: put the token of the cluster there, or remove the file for a new one", path)
		}
		return token, true, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	token = nexar.NewToken()
	err = os.MkdirAll(f.stateDir, 0o700)
	if err == nil {
		err = os.WriteFile(path+".new", []byte(token+"\n"), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path) // never half of it
	}
	return token, true, err
}

// printInstructions says what to run on the other hosts.
func printInstructions(s streams, addr, addrs string, world int, token string, made bool) {
	fmt.Fprintf(s.out, "seed for %s at %s\n\nOn the other hosts, set:\n\n  export NEXAR_SEEDS=%s\n", nodes(world), addr, addrs)
	if made {
		fmt.Fprintf(s.out, "  export NEXAR_CLUSTER_TOKEN=%s\n", token)
	} else {
		fmt.Fprintln(s.out, "  export NEXAR_CLUSTER_TOKEN=...   (the same as here)")
	}
	fmt.Fprintf(s.out, "\nand start the program, or several ranks of it:\n\n  nexar run -n 2 --seed %s -- PROGRAM\n\n", addrs)
}

// follow prints how the world forms and ends.
func follow(ctx context.Context, out io.Writer, seed *nexar.Seed, f *seedFlags, events <-chan nexar.SeedEvent, signals <-chan os.Signal) error {
	waiting, stop := context.WithCancel(ctx)
	verdict := make(chan error, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() { verdict <- seed.Wait(waiting) })
	defer waiter.Wait()
	defer stop()

	// A seed that reads from its directory that a world has formed tells of no joins.
	formed, full := false, f.stateDir != ""
	print := func(e nexar.SeedEvent) {
		full = full || e.Joined == f.world
		fmt.Fprintln(out, describe(e))
	}
	hasFormed := func() {
		for !full {
			print(<-events) // The seed tells of a join a moment later.
		}
		formed = true
		fmt.Fprintf(out, "the world of %s has formed\n", nodes(f.world))
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
			if err := seed.Err(); err != nil {
				return err
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
	if e.Leader != "" {
		return fmt.Sprintf("the seed at %s leads", e.Leader)
	}
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
	if e.Back {
		return fmt.Sprintf("%s is back (%s)", who, there)
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
	for _, p := range nexar.CheckEnviron(os.Environ()) {
		fmt.Fprintf(w, "%s: note: %s: %s\n", title, p.Text, p.Fix)
	}
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
