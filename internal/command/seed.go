package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
	"github.com/nexar-go/nexar/internal/command/internal/launch"
)

// seedFlags are the flags of nexar seed.
type seedFlags struct {
	peerFlags
	world       int
	elastic     bool
	min, max    int
	formTimeout time.Duration
	logLevel    string
	health      string
	http        string
	metrics     string
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
			if !cmd.Flags().Changed("world") {
				return usagef("--world is missing: give the number of nodes, as in: nexar seed --world 4")
			}
			err := f.run(cmd.Context(), s)
			if ended, ok := errors.AsType[*launch.SignalError](err); ok {
				fmt.Fprintln(s.out, ended)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.listen, "listen", "", "`host:port` to listen on; host alone means port 7946, port 0 any free port (default \":0\", or the address of this seed in --peers)")
	flags.IntVar(&f.world, "world", 0, "number of nodes of the world (required)")
	flags.BoolVar(&f.elastic, "elastic", false, "let nodes join after the world has formed")
	flags.IntVar(&f.min, "min", 0, "minimum `number` of nodes of an elastic world (default 1)")
	flags.IntVar(&f.max, "max", 0, "maximum `number` of nodes of an elastic world (default: no limit)")
	f.definePeers(cmd)
	flags.DurationVar(&f.formTimeout, "form-timeout", 5*time.Minute, "time for the world to form; negative for no limit")
	flags.StringVar(&f.health, "health", "", "`host:port` to answer HTTP requests for /healthz and /readyz (default: none)")
	flags.StringVar(&f.http, "http", "", httpUsage)
	flags.StringVar(&f.metrics, "metrics", "", metricsUsage)
	flags.StringVar(&f.logLevel, "log-level", "warn", "lowest `level` to log to standard error: debug, info, warn or error")
	return cmd
}

// run serves until all nodes have gone or a signal arrives.
func (f *seedFlags) run(ctx context.Context, s streams) error {
	level, err := f.check()
	if err != nil {
		return err
	}
	peerToken, err := f.peerToken()
	if err != nil {
		return err
	}
	// Ctrl-C and the SIGTERM of a service manager end the seed in an orderly way.
	ctx, release := launch.UntilSignal(ctx, os.Interrupt, syscall.SIGTERM)
	defer release()
	token, file, printed, err := f.token()
	if err != nil {
		return f.explain(err)
	}
	warnOfEnv(s.err, "nexar seed")
	// Only this goroutine writes lines, so that they stay in order.
	ctx, stop := context.WithCancel(ctx)
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level}))
	events := make(chan nexar.SeedEvent)
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: f.listen, World: f.world, Elastic: f.elastic, ElasticMin: f.min, ElasticMax: f.max,
		Token: token, TokenFile: file, StateDir: f.stateDir, ForgetState: f.forget, Consensus: raft.Open, Peers: f.peers, PeerToken: peerToken, CACertFile: f.caCert, CAKeyFile: f.caKey, Advertise: f.advertise, FormTimeout: f.formTimeout, Health: f.health,
		Log: log,
		Progress: func(e nexar.SeedEvent) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		},
	})
	if err != nil {
		stop()
		return f.explain(err)
	}
	defer seed.Close()
	defer stop()

	addrs := seed.Addr()
	if len(f.peers) > 0 {
		addrs = strings.Join(f.peers, ",")
	}
	cfg := nexar.Config{Seeds: strings.Split(addrs, ","), Token: token, TokenFile: file, CAFile: f.caCert}
	if f.metrics != "" {
		stop, err := serveMetrics(s.err, "nexar seed", f.metrics, cfg)
		if err != nil {
			return err
		}
		defer stop()
	}
	if f.http != "" {
		stop, err := servePage(s.err, "nexar seed", f.http, "nexar ticket, with the token of the cluster", cfg)
		if err != nil {
			return err
		}
		defer stop()
	}
	if _, err := fmt.Fprintf(s.out, instructions, nodes(f.world), seed.Addr(), addrs, printed, addrs); err != nil {
		return fmt.Errorf("the instructions for the other hosts cannot be printed: %w", err)
	}
	return follow(ctx, s.out, seed, f, events)
}

func (f *seedFlags) check() (level slog.Level, err error) {
	if f.world < 1 {
		return level, usagef("--world %d: must be at least 1", f.world)
	}
	if listen := withSeedPort(f.listen); f.listen != "" && !isListenAddr(listen) {
		return level, usagef("--listen %q: want host:port, :port, host:0, or host with the port %s", f.listen, nexar.SeedPort)
	}
	if f.health != "" && !isListenAddr(f.health) {
		return level, usagef("--health %q: want host:port or :port", f.health)
	}
	for flag, value := range map[string]string{"--http": f.http, "--metrics": f.metrics} {
		if _, err := httpAddr(flag, value); err != nil {
			return level, err
		}
	}
	if err := f.checkPeers(); err != nil {
		return level, err
	}
	if f.stateDir != "" && strings.HasSuffix(f.listen, ":0") {
		return level, usagef("--state-dir needs --listen with a fixed port: nodes reconnect to a restarted seed at its old address")
	}
	if err := checkElastic(f.elastic, true, f.min, f.max, f.world); err != nil {
		return level, err
	}
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return level, usagef("--log-level %q: want debug, info, warn or error", f.logLevel)
	}
	return level, nil
}

// isListenAddr reports whether addr has a port from 0 to 65535.
func isListenAddr(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// explain adds a remedy to the error of a seed that cannot listen or cannot write its state.
func (f *seedFlags) explain(err error) error {
	file, _ := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: use an address of this host, or :port for all of them", err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: another program, such as an earlier seed, uses the port: end it, or choose another port", err)
	case file != nil && f.stateDir != "" && (within(f.stateDir, file.Path) || within(file.Path, f.stateDir)) &&
		(errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)):
		return fmt.Errorf("%w: make %s a directory that this user can write to; in a container, mount a volume there", err, f.stateDir)
	}
	return err
}

// within reports whether a path is dir or below it.
func within(path, dir string) bool {
	below, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(below)
}

// token returns the token of the cluster or the file that has it, neither if it is in the environment, and the value of
// NEXAR_CLUSTER_TOKEN to print for the other hosts. That is the token only if this call has made it. A token that it makes is kept in
// --state-dir.
func (f *seedFlags) token() (token, file, printed string, err error) {
	switch {
	case os.Getenv(tokenVariable) != "" || os.Getenv(tokenFileVariable) != "":
		return "", "", "...   (the same as here)", nil
	case len(f.peers) > 0:
		return "", "", "", checkToken("")
	case f.stateDir == "":
		token = nexar.NewToken()
		return token, "", token, nil
	}
	file = filepath.Join(f.stateDir, "token")
	if err = os.MkdirAll(f.stateDir, 0o700); err == nil {
		_, err = os.Lstat(file)
	}
	if err == nil {
		return "", file, fmt.Sprintf("...   (the token in %s)", file), nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		token = nexar.NewToken()
		err = os.WriteFile(file+".new", []byte(token+"\n"), 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file) // atomic
	}
	if err != nil {
		return "", "", "", fmt.Errorf("--state-dir %q: %w", f.stateDir, err)
	}
	return token, "", token, nil
}

// instructions are the variables and the command for the other hosts.
const instructions = `seed for %s at %s

On the other hosts, set:

  export NEXAR_SEEDS=%s
  export NEXAR_CLUSTER_TOKEN=%s

and start the program, or several ranks of it:

  nexar run -n 2 --seed %s -- PROGRAM

`

// follow prints events until the world has ended or a signal arrives.
func follow(ctx context.Context, out io.Writer, seed *nexar.Seed, f *seedFlags, events <-chan nexar.SeedEvent) error {
	waiting, stop := context.WithCancel(ctx)
	verdict := make(chan error, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() { verdict <- seed.Wait(waiting) })
	defer waiter.Wait()
	defer stop()

	// A seed that is restarted after its world has formed reports no joins.
	formed, full := false, f.stateDir != ""
	report := func(e nexar.SeedEvent) {
		full = full || e.Joined == f.world
		fmt.Fprintln(out, describe(e))
	}
	hasFormed := func() {
		for !full {
			report(<-events) // The event of the last join may come after the verdict.
		}
		formed = true
		fmt.Fprintf(out, "the world of %s has formed\n", nodes(f.world))
	}
	for {
		select {
		case e := <-events:
			report(e)
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
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// describe returns the line for an event.
func describe(e nexar.SeedEvent) string {
	if e.Leader != "" {
		return fmt.Sprintf("the seed at %s leads", e.Leader)
	}
	if e.Forming != "" {
		return fmt.Sprintf("%s (for %v)", e.Forming, e.Waited)
	}
	node := fmt.Sprintf("%s at %s", e.Name, e.Addr)
	if e.Rank >= 0 {
		node = fmt.Sprintf("rank %d, %s,", e.Rank, node)
	}
	present := fmt.Sprintf("%d of %s", e.Joined, nodes(e.World))
	if e.Joined > e.World {
		present = fmt.Sprintf("%d nodes, %d more than the world formed with", e.Joined, e.Joined-e.World)
	}
	switch {
	case e.Left:
		return fmt.Sprintf("%s has left (%s remain)", node, present)
	case e.Gone:
		return fmt.Sprintf("%s is gone: %s (%s remain)", node, e.Reason, present)
	}
	if e.Reconnected {
		return fmt.Sprintf("%s is back (%s)", node, present)
	}
	return fmt.Sprintf("%s has joined (%s)", node, present)
}

// warnOfEnv warns of unknown NEXAR_ variables.
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
