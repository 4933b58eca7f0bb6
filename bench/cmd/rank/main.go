// Command rank is one rank of the comparison, on nexar for Go.
//
// "nexar run" starts it, or the environment has the variables of [nexar.ConfigFromEnv]. It
// speaks the protocol of README.md, and uses only the public API.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
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
	ops          []op
	sizes        []int // bytes
	budget, warm time.Duration
	untouched    bool     // measure vectors that are not written anew, too
	want         []string // transports; nil is any
}

func run(ctx context.Context, args []string, out io.Writer) error {
	t, err := parse(args)
	if err != nil {
		return err
	}
	node, err := nexar.Join(ctx, nexar.Config{CollectiveTimeout: timeout, BarrierTimeout: timeout})
	if err != nil {
		return err
	}
	return errors.Join(t.measure(ctx, node.World(), &lines{out: out}), node.Close())
}

func parse(args []string) (task, error) {
	var t task
	flags := flag.NewFlagSet("rank", flag.ContinueOnError)
	names := flags.String("ops", "", "`operations`, separated by commas")
	sizes := flags.String("sizes", "", "sizes of the vectors in `bytes`, separated by commas")
	budget := flags.Float64("budget", 1, "`seconds` for one operation at one size")
	warm := flags.Float64("warm", 0, "`seconds` before, which do not count")
	untouched := flags.Int("untouched", 0, "`1` to measure vectors that are not written anew before each iteration, too")
	want := flags.String("want", "", "fail unless the ranks use one of these `transports`, separated by commas; those with encryption end in +tls")
	if err := flags.Parse(args); err != nil {
		return t, err
	}
	if *want != "" {
		t.want = strings.Split(*want, ",")
	}
	t.untouched = *untouched != 0
	t.budget, t.warm = time.Duration(*budget*float64(time.Second)), time.Duration(*warm*float64(time.Second))
	for name := range strings.SplitSeq(*names, ",") {
		o, err := find(name)
		if err != nil {
			return t, err
		}
		t.ops = append(t.ops, o)
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		bytes, err := strconv.Atoi(text)
		if err != nil || bytes < elem {
			return t, fmt.Errorf("-sizes %q: must be numbers of bytes from %d on, separated by commas", *sizes, elem)
		}
		t.sizes = append(t.sizes, bytes)
	}
	return t, nil
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
	for _, bytes := range t.sizes {
		floats = max(floats, bytes/elem)
	}
	r := &rank{comm: c, src: make([]float32, floats), dst: make([]float32, floats)}
	for _, o := range t.ops {
		sizes := t.sizes
		if o.empty {
			sizes = []int{0}
		}
		for _, bytes := range sizes {
			samples, err := r.measure(ctx, o, bytes, t)
			if err != nil {
				return fmt.Errorf("%s of %d bytes: %w", o.name, bytes, err)
			}
			for _, got := range samples {
				if err := say.line(got); err != nil {
					return err
				}
			}
		}
	}
	return c.Barrier(ctx) // A rank must not close its links while others still measure.
}

// lines writes lines of JSON, each with one Write. The ranks of a test share it.
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
