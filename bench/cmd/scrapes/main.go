// Command scrapes measures what metrics cost a program: the time of an all-reduce of 8 bytes between two processes in shared memory, while this process scrapes
// both ranks, and while it does not, in turn.
//
//	cd bench && go run ./cmd/scrapes
//
// A turn is a second with a scrape of each rank, and one without. The output has the medians of the times, and that of
// the ratios of the turns with its interval of 95 %, by their ranks: other load on the machine widens the interval and shifts the median little.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	turns := flag.Int("turns", 60, "`number` of turns, each of two phases")
	every := flag.Duration("every", time.Second, "`time` of a phase, in which each rank is scraped once or not at all")
	isRank := flag.Bool("rank", false, "be a rank of the measurement")
	flag.Parse()
	run := func() error { return measure(ctx, *turns, *every, os.Stdout) }
	if *isRank {
		run = func() error { return rank(ctx, os.Stdin, os.Stdout) }
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "scrapes: %v\n", err)
		os.Exit(1)
	}
}

// A phase is the calls of a rank between two lines of its standard input.
type phase struct {
	Addr  string // of its metrics, before the first phase
	Calls int
	Time  time.Duration
}

// calls is the number of calls between two looks at standard input.
const calls = 500

// rank makes all-reduces. At each line of in it writes the phase that ends. It ends with in.
func rank(ctx context.Context, in io.Reader, out io.Writer) error {
	node, err := nexar.Join(ctx, nexar.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	defer node.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := http.Server{Handler: metrics.Handler(node), ReadHeaderTimeout: time.Minute}
	defer server.Close()
	go func() { _ = server.Serve(l) }() // A server that has failed makes the scrapes fail.
	lines := make(chan byte)
	go func() {
		defer close(lines)
		for b := make([]byte, 1); ; {
			if _, err := in.Read(b); err != nil {
				return
			}
			lines <- b[0]
		}
	}()
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(phase{Addr: l.Addr().String()}); err != nil {
		return err
	}
	var p phase
	for {
		ended := 0.0
		select {
		case _, more := <-lines:
			if !more {
				ended = 1
			} else if err := encoder.Encode(p); err != nil {
				return err
			}
			p = phase{}
		default:
		}
		began := time.Now()
		for range calls {
			if err := nexar.AllReduce(ctx, node.World(), []float64{0}, nexar.Sum); err != nil {
				return err
			}
		}
		p.Calls, p.Time = p.Calls+calls, p.Time+time.Since(began)
		all := []float64{ended}
		if err := nexar.AllReduce(ctx, node.World(), all, nexar.Sum); err != nil || all[0] > 0 {
			return err
		}
	}
}

// A child is a rank as a process.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// measure writes the result of a number of turns.
func measure(ctx context.Context, turns int, every time.Duration, out io.Writer) (err error) {
	if turns < 6 { // Fewer have no interval.
		return fmt.Errorf("-turns %d: must be at least 6", turns)
	}
	token := nexar.NewToken()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: token})
	if err != nil {
		return err
	}
	defer seed.Close()
	var ranks [2]child
	var addrs []string
	for i := range ranks {
		c := &ranks[i]
		c.cmd = exec.CommandContext(ctx, os.Args[0], "-rank")
		c.cmd.Env = append(os.Environ(), "NEXAR_SEEDS="+seed.Addr(), "NEXAR_CLUSTER_TOKEN="+token)
		c.cmd.Stderr = os.Stderr
		stdout, err := c.cmd.StdoutPipe()
		if err == nil {
			c.in, err = c.cmd.StdinPipe()
		}
		if err == nil {
			err = c.cmd.Start()
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.in.Close(), c.cmd.Wait()) }()
		c.out = json.NewDecoder(stdout)
	}
	for i := range ranks {
		var p phase
		if err := ranks[i].out.Decode(&p); err != nil {
			return fmt.Errorf("rank %d has not started: %w", i, err)
		}
		addrs = append(addrs, p.Addr)
	}
	// end ends a phase, and returns the time of a call of the first rank, which waits for the other, in microseconds.
	end := func() (float64, error) {
		var p phase
		if _, err := io.WriteString(ranks[0].in, "\n"); err != nil {
			return 0, err
		}
		if err := ranks[0].out.Decode(&p); err != nil {
			return 0, err
		}
		return float64(p.Time) / float64(max(p.Calls, 1)) / 1e3, nil
	}
	var without, with, ratios []float64
	for turn := range turns + 1 {
		var times [2]float64 // without and with a scrape
		for i := range times {
			isScraped := i ^ turn&1
			if err := wait(ctx, every, addrs, isScraped == 1); err != nil {
				return err
			}
			if times[isScraped], err = end(); err != nil {
				return err
			}
		}
		if turn > 0 { // The first one warms up.
			without, with, ratios = append(without, times[0]), append(with, times[1]), append(ratios, times[1]/times[0])
		}
	}
	percent := func(ratio float64) float64 { return 100 * (ratio - 1) }
	low, middle, high := interval(ratios)
	_, base, _ := interval(without)
	_, scraped, _ := interval(with)
	_, err = fmt.Fprintf(out, "all-reduce of 8 B in shared memory, %d turns: %.3f µs without scrapes, %.3f µs with one of each rank in %v (medians)\nmetrics cost %+.2f %% (95 %%: %+.2f to %+.2f %%)\n",
		turns, base, scraped, every, percent(middle), percent(low), percent(high))
	return err
}

// interval returns the median of a list and the bounds of its confidence interval of 95 %, which are elements of the list.
func interval(list []float64) (low, median, high float64) {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	half := 1.96 * math.Sqrt(float64(n)) / 2 // of the binomial distribution of the elements below the median
	return list[max(0, int(float64(n)/2-half))], list[n/2], list[min(n-1, int(math.Ceil(float64(n)/2+half)))]
}

// wait waits for a phase, in the middle of which it scrapes, if it should.
func wait(ctx context.Context, every time.Duration, addrs []string, isScraped bool) error {
	rest := time.After(every)
	select {
	case <-time.After(every / 2):
	case <-ctx.Done():
		return ctx.Err()
	}
	if isScraped {
		errs := make([]error, len(addrs))
		var scraping sync.WaitGroup
		for i, addr := range addrs {
			scraping.Go(func() { errs[i] = scrape(ctx, addr) })
		}
		scraping.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	select {
	case <-rest:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func scrape(ctx context.Context, addr string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}
