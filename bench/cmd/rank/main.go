// Command rank is one rank of the comparison, on nexar for Go. With -local it runs all ranks in
// one process.
//
// "nexar run" starts it, or the environment has the variables of [nexar.ConfigFromEnv]. It
// speaks the protocol of README.md, and uses only the public API.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
)

// timeout exceeds the time after which the driver kills a program, which reports the hang.
const timeout = time.Hour

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "rank: %v\n", err)
		os.Exit(1)
	}
}

// A task is the work that the flags define.
type task struct {
	ops    []op
	points []point
	budget time.Duration
	local  int
	want   []string // transports; nil is any
}

func run(ctx context.Context, args []string, out io.Writer) error {
	t, err := parse(args)
	if err != nil {
		return err
	}
	cfg := nexar.Config{CollectiveTimeout: timeout, BarrierTimeout: timeout}
	say := &lines{out: out}
	if t.local > 0 {
		comms, err := nexar.Local(ctx, t.local, cfg)
		if err != nil {
			return err
		}
		return t.inOneProcess(ctx, comms, say)
	}
	node, err := nexar.Join(ctx, cfg)
	if err != nil {
		return err
	}
	return errors.Join(t.measure(ctx, node.World(), say), node.Close())
}

func parse(args []string) (task, error) {
	var t task
	flags := flag.NewFlagSet("rank", flag.ContinueOnError)
	names := flags.String("ops", "", "`operations`, separated by commas")
	points := flags.String("points", "", "sizes as `bytes:iterations:warm-ups`, separated by commas")
	budget := flags.Float64("budget", 1, "`seconds` for one operation at one size")
	flags.IntVar(&t.local, "local", 0, "number of `ranks` in this process; 0 joins a cluster as one rank")
	want := flags.String("want", "", "fail unless the ranks use one of these `transports`, separated by commas; those with encryption end in +tls")
	if err := flags.Parse(args); err != nil {
		return t, err
	}
	if *want != "" {
		t.want = strings.Split(*want, ",")
	}
	t.budget = time.Duration(*budget * float64(time.Second))
	for name := range strings.SplitSeq(*names, ",") {
		o, err := find(name)
		if err != nil {
			return t, err
		}
		t.ops = append(t.ops, o)
	}
	for text := range strings.SplitSeq(*points, ",") {
		var p point
		if n, err := fmt.Sscanf(text, "%d:%d:%d", &p.bytes, &p.iters, &p.warm); n != 3 || err != nil || p.bytes < elem || p.iters < itersMin {
			return t, fmt.Errorf("-points %q: must be bytes:iterations:warm-ups, with at least %d bytes and %d iterations", text, elem, itersMin)
		}
		t.points = append(t.points, p)
	}
	return t, nil
}

func (t task) inOneProcess(ctx context.Context, comms []*nexar.Comm, say *lines) error {
	errs := make([]error, len(comms))
	var all sync.WaitGroup
	for i, c := range comms {
		all.Go(func() { errs[i] = errors.Join(t.measure(ctx, c, say), c.Close()) })
	}
	all.Wait()
	return cmp.Or(errs...)
}

// measure measures all operations at all sizes on one rank.
func (t task) measure(ctx context.Context, c *nexar.Comm, say *lines) error {
	have := c.Transport()
	if c.Encrypted() {
		have += "+tls"
	}
	if t.want != nil && !slices.Contains(t.want, have) {
		return fmt.Errorf("-want %s: the ranks use %s; the transport is missing in this version or not available on this machine", strings.Join(t.want, ","), have)
	}
	if c.Rank() == 0 {
		if err := say.line(map[string]string{"about": "nexar for Go, " + have}); err != nil {
			return err
		}
	}
	floats := c.Size() // A block has at least one element for each rank.
	for _, p := range t.points {
		floats = max(floats, p.bytes/elem)
	}
	r := &rank{comm: c, src: make([]float32, floats), dst: make([]float32, floats)}
	for _, o := range t.ops {
		points := t.points
		if o.empty {
			points = []point{{0, points[0].iters, points[0].warm}}
		}
		for _, p := range points {
			got, err := r.measure(ctx, o, p, t.budget)
			if err != nil {
				return fmt.Errorf("%s of %d bytes: %w", o.name, p.bytes, err)
			}
			if err := say.line(got); err != nil {
				return err
			}
		}
	}
	return c.Barrier(ctx) // A rank must not close its links while others still measure.
}

// lines writes lines of JSON, each with one Write. The ranks of the process share it.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.out.Write(append(text, '\n'))
	return err
}

// median returns the median in microseconds, and sorts times.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	n := len(times)
	return float64(times[(n-1)/2]+times[n/2]) / 2 / float64(time.Microsecond)
}
