//go:build linux

// Command bench measures and verifies all-reduces over RDMA, with ranks in this process, and counts the bytes that the transport copies and
// writes remotely, and the waits for events. It runs in the virtual machines of "make rdma-full", also in two that are joined.
// On hardware use nexar-hw bench --transport rdma.
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
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/hw/transport/rdma"
	"github.com/nexar-go/nexar/transport"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := bench(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// benchFlags are the flags of the command.
type benchFlags struct {
	ranks, world  int
	seed, serve   string
	listen        string
	transport     string
	device, gid   string
	maxBytes      int
	iters         int
	rounds        int
	heartbeat     time.Duration
	registered    bool
	requireDirect bool
	mustWrite     bool
	suite         int
	stall         time.Duration

	counters rdma.Counters
}

// counts are the values of the counters at one moment.
type counts struct{ copied, written, waits uint64 }

func (f *benchFlags) counts() counts {
	return counts{f.counters.Copied(), f.counters.Written(), f.counters.Waits()}
}

func parseBench(args []string, out io.Writer) (f *benchFlags, err error) {
	f = new(benchFlags)
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(out)
	set.IntVar(&f.ranks, "n", 2, "number of ranks in this process")
	set.IntVar(&f.world, "world", 0, "number of ranks of all processes; the default is that of this process")
	set.StringVar(&f.seed, "seed", "", "host:port of the seed of another process; the default is a seed of this process")
	set.StringVar(&f.serve, "serve", "127.0.0.1:0", "host:port at which the seed of this process listens")
	set.StringVar(&f.listen, "listen", "127.0.0.1:0", "host:port at which each rank listens")
	set.StringVar(&f.transport, "transport", rdma.Name, "transport between ranks: rdma or tcp")
	set.StringVar(&f.device, "device", "", "RDMA device; the default is the first one with an active port")
	set.StringVar(&f.gid, "gid", "", "index or address of the GID; the default is a routable address of RoCE v2")
	set.IntVar(&f.maxBytes, "max", 8<<20, "length of the longest vector in bytes")
	set.IntVar(&f.iters, "iters", 20, "number of operations for each length; fewer for long vectors")
	set.IntVar(&f.rounds, "rounds", 1, "number of repetitions of the table")
	set.DurationVar(&f.heartbeat, "heartbeat-timeout", 5*time.Second, "silence after which a peer has failed")
	set.BoolVar(&f.registered, "registered", true, "use vectors of AllocRegistered, and not of the Go heap")
	set.BoolVar(&f.requireDirect, "require", true, "fail unless the transport connects all ranks")
	set.BoolVar(&f.mustWrite, "require-written", false, "fail unless the transport of this process writes payloads remotely")
	set.IntVar(&f.suite, "suite", 0, "run each collective once with vectors of this number of float64, instead of the table")
	set.DurationVar(&f.stall, "stall", 0, "time without progress after which a queue pair is given up; 0 is the default of the transport")
	if err := set.Parse(args); err != nil {
		return f, err
	}
	f.world = cmp.Or(f.world, f.ranks)
	switch {
	case set.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", set.Arg(0))
	case f.ranks < 1 || f.world < 2 || f.world < f.ranks:
		err = fmt.Errorf("-n %d, -world %d: want at least one rank here, and two in the world", f.ranks, f.world)
	case f.maxBytes < 8 || f.iters < 1 || f.rounds < 1:
		err = fmt.Errorf("-max %d, -iters %d, -rounds %d: want at least 8, 1 and 1", f.maxBytes, f.iters, f.rounds)
	case f.transport != rdma.Name && f.transport != "tcp":
		err = fmt.Errorf("-transport %q: want rdma or tcp", f.transport)
	case f.suite < 0 || f.stall < 0:
		err = fmt.Errorf("-suite %d, -stall %v: must not be negative", f.suite, f.stall)
	case f.heartbeat <= 0:
		err = fmt.Errorf("-heartbeat-timeout %v: must be positive", f.heartbeat)
	}
	return f, err
}

// bench runs all-reduces on the ranks of this process, which may be a part of a world. Rank 0 writes the table.
func bench(ctx context.Context, args []string, out io.Writer) error {
	f, err := parseBench(args, out)
	if err != nil {
		return err
	}
	seed := f.seed
	if seed == "" {
		s, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: f.serve, World: f.world, Transports: []string{"quic", "tcp"}, AllowWeakToken: true})
		if err != nil {
			return err
		}
		defer s.Close()
		seed = s.Addr()
	}
	cfg := nexar.Config{
		Seeds: []string{seed}, Listen: f.listen, Transports: []string{"tcp"}, AllowWeakToken: true,
		HeartbeatInterval: f.heartbeat / 5, HeartbeatTimeout: f.heartbeat,
	}
	if f.transport == rdma.Name {
		cfg.Transports = []string{"quic", "tcp", f.transport}
		cfg.Factories = []transport.Factory{rdma.Factory(rdma.Config{Device: f.device, GID: f.gid, Listen: f.listen, Stall: f.stall, Counters: &f.counters})}
	}
	var ranks sync.WaitGroup
	errs := make([]error, f.ranks)
	for i := range f.ranks {
		ranks.Go(func() { errs[i] = f.runRank(ctx, cfg, out) })
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch n := f.counters.Failures(); {
	case f.requireDirect && n > 0:
		return fmt.Errorf("the queue pairs of %d connections failed, want none", n)
	case f.mustWrite && f.counters.Written() == 0:
		return errors.New("no byte was written remotely")
	}
	return nil
}

// runRank joins the world and measures.
func (f *benchFlags) runRank(ctx context.Context, cfg nexar.Config, out io.Writer) error {
	node, err := nexar.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer node.Close()
	for range f.rounds {
		run := f.table
		if f.suite > 0 {
			run = f.collectives
		}
		if err := run(ctx, node, out); err != nil {
			return fmt.Errorf("rank %d: %w", node.World().Rank(), err)
		}
	}
	for _, p := range node.Peers() {
		if f.requireDirect && p.Rank != node.World().Rank() && !strings.HasPrefix(p.BulkTransport, f.transport) {
			return fmt.Errorf("payloads of rank %d for rank %d are sent over %q, want %s", node.World().Rank(), p.Rank, p.BulkTransport, f.transport)
		}
	}
	return node.World().Barrier(ctx)
}

// table measures all lengths.
func (f *benchFlags) table(ctx context.Context, node *nexar.Node, out io.Writer) error {
	w := node.World()
	var rows strings.Builder
	table := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "bytes\ttime/op\tcopied/op\twritten/op\twaits/op\t")
	for n := 8; n <= f.maxBytes; n *= 16 {
		iters := max(2, min(f.iters, 32<<20/n))
		took, used, err := f.measure(ctx, w, n, iters)
		if err != nil {
			return fmt.Errorf("all-reduce of %d bytes: %w", n, err)
		}
		k := uint64(iters)
		fmt.Fprintf(table, "%d\t%v\t%d\t%d\t%.1f\t\n", n, (took / time.Duration(iters)).Round(time.Microsecond), used.copied/k, used.written/k, float64(used.waits)/float64(k))
	}
	if w.Rank() > 0 {
		return nil
	}
	table.Flush()
	_, err := fmt.Fprintf(out, "all-reduce over %s, %d ranks, %d of them in this process; copied and written are bytes of the transport in this process\n%s%s",
		f.transport, w.Size(), f.ranks, rows.String(), f.failures())
	return err
}

// failures tells how many connections over RDMA have failed.
func (f *benchFlags) failures() string {
	if n := f.counters.Failures(); n > 0 {
		return fmt.Sprintf("all-reduce over RDMA: the queue pairs of %d connections of this process failed; their links went on over other transports\n", n)
	}
	return ""
}

// measure runs and verifies all-reduces of n bytes. The counters are those of this process.
func (f *benchFlags) measure(ctx context.Context, w *nexar.Comm, n, iters int) (took time.Duration, used counts, err error) {
	v := make([]float64, n/8)
	if f.registered {
		var free func()
		if v, free, err = nexar.AllocRegistered[float64](n / 8); err != nil {
			return 0, used, err
		}
		defer free()
	}
	var before counts
	var began time.Time
	for i := range iters + 1 { // The first one is not measured.
		if i == 1 {
			if err := w.Barrier(ctx); err != nil {
				return 0, used, err
			}
			before, began = f.counts(), time.Now()
		}
		for k := range v {
			v[k] = float64(w.Rank() + 1 + k%5)
		}
		if err := nexar.AllReduce(ctx, w, v, nexar.Sum); err != nil {
			return 0, used, err
		}
		size := w.Size()
		for k, got := range v {
			if want := float64(size*(size+1)/2 + size*(k%5)); got != want {
				return 0, used, fmt.Errorf("element %d is %v, want %v", k, got, want)
			}
		}
	}
	took = time.Since(began)
	if err := w.Barrier(ctx); err != nil {
		return 0, used, err
	}
	after := f.counts()
	used = counts{after.copied - before.copied, after.written - before.written, after.waits - before.waits}
	return took, used, nil
}
