package bench

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world calls f on each of n ranks in this process.
func world(t *testing.T, n int, f func(c *nexar.Comm) error) {
	t.Helper()
	comms, err := nexar.Local(t.Context(), n, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, c := range comms {
		wg.Go(func() {
			errs[i] = f(c)
			errs[i] = errors.Join(errs[i], c.Barrier(t.Context()), c.Close())
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestEveryOperationIsRight(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		cells := map[string]int{}
		world(t, n, func(c *nexar.Comm) error {
			return Run(t.Context(), c, Config{MaxBytes: 300_000, Factor: 64, Runs: 2, Result: func(r Result) {
				cells[r.Op]++
				if r.Wrong != 0 {
					t.Errorf("%d ranks, %s of %d bytes: got %d wrong elements, want none", n, r.Op, r.Bytes, r.Wrong)
				}
				if r.Ranks != n || r.Iters != 2 || r.Transport != "mem" || r.P50 <= 0 || r.P99 < r.P50 {
					t.Errorf("got result %+v, want %d ranks, 2 runs, over mem, and times", r, n)
				}
			}})
		})
		for _, op := range Ops() {
			want := 4 // 8 B, 512 B, 32 KiB, 300,000 B
			if op == "barrier" {
				want = 1
			}
			if cells[op] != want {
				t.Errorf("%d ranks, %s: got %d results, want %d", n, op, cells[op], want)
			}
		}
	}
}

// Every kind of wrong element is counted.
func TestWrongResultsAreCounted(t *testing.T) {
	const n, count = 4, 100_000
	tests := []struct {
		name  string
		op    string
		spoil func(c *nexar.Comm, dst, src []float32)
		want  int64
	}{
		{"one element on one rank", "all_reduce", func(c *nexar.Comm, dst, _ []float32) {
			if c.Rank() == 2 {
				dst[count-1]++
			}
		}, 1},
		{"elements that are never written", "all_gather", func(_ *nexar.Comm, dst, _ []float32) {
			clear(dst[10:20])
		}, 10 * n},
		{"the block of another rank", "reduce_scatter", func(c *nexar.Comm, dst, _ []float32) {
			if c.Rank() == 1 {
				for i := range dst {
					dst[i] = -1
				}
			}
		}, count / n},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			good, err := find(test.op)
			if err != nil {
				t.Fatal(err)
			}
			bad := *good
			bad.run = func(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
				if err := good.run(ctx, c, dst, src); err != nil {
					return err
				}
				test.spoil(c, dst, src)
				return nil
			}
			world(t, n, func(c *nexar.Comm) error {
				bad := cell{&bad, count * elem}
				r, err := newRank(c, []cell{bad}).measure(t.Context(), bad, pace{fixed: 2}, 0)
				if c.Rank() == 0 && r.Wrong != 2*test.want {
					t.Errorf("got %d wrong elements, want %d in each of 2 runs", r.Wrong, test.want)
				}
				return err
			})
		})
	}
}

// Blocks of different ranks and positions differ, so that none can be taken for another.
func TestOracleTellsPlacesApart(t *testing.T) {
	o := newOracle()
	const count = 1000
	got := make([]float32, count)
	for _, shift := range []int{1, 2, 64, 4096, 16384, 65536, 1 << 20} {
		fill(got, []piece{o.of(0, shift, count)})
		if n := wrong(got, []piece{o.of(0, 0, count)}); n < count*9/10 {
			t.Errorf("a shift by %d elements is seen in %d of %d", shift, n, count)
		}
	}
	for rank := 1; rank < 64; rank++ {
		fill(got, []piece{o.of(rank, 0, count)})
		if n := wrong(got, []piece{o.of(0, 0, count)}); n < count*9/10 {
			t.Errorf("rank %d instead of rank 0 is seen in %d of %d elements", rank, n, count)
		}
	}
	fill(got, []piece{o.sum(0, 4, 0, count)})
	if n := wrong(got, []piece{o.sum(0, 3, 0, count)}); n != count {
		t.Errorf("a rank that is left out of a sum is seen in %d of %d elements", n, count)
	}
}

func TestSizes(t *testing.T) {
	tests := []struct {
		op             string
		lo, hi, factor int64
		ranks          int
		want           []int64
	}{
		{"all_reduce", 8, 64, 2, 4, []int64{8, 16, 32, 64}},
		{"all_reduce", 8, 100, 4, 4, []int64{8, 32, 100}},
		{"all_reduce", 1, 1, 2, 4, []int64{4}},
		{"all_gather", 8, 64, 2, 4, []int64{16, 32, 64}},
		{"all_gather", 8, 64, 2, 3, []int64{12, 24, 60}},
		{"barrier", 8, 64, 2, 4, []int64{0}},
		{"send_recv", 1 << 62, 1<<63 - 1, 2, 1, []int64{1 << 62, 1<<63 - 4}},
	}
	for _, test := range tests {
		o, err := find(test.op)
		if err != nil {
			t.Fatal(err)
		}
		if got := o.sizes(test.lo, test.hi, test.factor, test.ranks); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s from %d to %d by %d on %d ranks: got %v, want %v",
				test.op, test.lo, test.hi, test.factor, test.ranks, got, test.want)
		}
	}
}

func TestBadConfig(t *testing.T) {
	for _, cfg := range []Config{
		{Ops: []string{"all_reduce", "all_reduction"}},
		{MinBytes: 100, MaxBytes: 10},
		{MinBytes: -1},
		{Factor: 1},
	} {
		if _, err := cfg.cells(4); err == nil {
			t.Errorf("%+v: got no error, want one", cfg)
		}
	}
	_, err := Config{Ops: []string{"all_reduction"}}.cells(4)
	if err == nil || !strings.Contains(err.Error(), "all_reduce, broadcast") {
		t.Errorf("got error %v, want one that lists the operations", err)
	}
}

// A cell with runs of equal length is run as often as its share of the time allows.
func TestPace(t *testing.T) {
	tests := []struct {
		name       string
		pace       pace
		each       time.Duration
		share      time.Duration
		want, step int // runs, and decisions
	}{
		{"as many as fit", pace{}, 100 * time.Millisecond, time.Second, 10, 4},
		{"no more than useful", pace{}, time.Microsecond, time.Hour, runsMax, 11},
		{"no time left", pace{}, time.Second, -time.Second, runsMin, 2},
		{"fixed", pace{fixed: 7}, time.Second, 0, 7, 2},
		{"fixed to one", pace{fixed: 1}, time.Second, 0, 1, 1},
		{"a clock that stands still", pace{}, 0, time.Second, runsMax, 11},
	}
	for _, test := range tests {
		done, steps := 0, 0
		for more := 1; more > 0 && steps < 100; steps++ {
			done += more
			more = test.pace.more(done, time.Duration(done)*test.each, test.share)
		}
		if done != test.want || steps != test.step {
			t.Errorf("%s: got %d runs in %d steps, want %d in %d", test.name, done, steps, test.want, test.step)
		}
	}
	now := time.Unix(0, 0)
	if got := (pace{end: now.Add(time.Minute)}).share(now, 6); got != 10*time.Second {
		t.Errorf("a sixth of a minute: got %v, want 10s", got)
	}
}

func TestQuantile(t *testing.T) {
	var times []time.Duration
	for i := 100; i > 0; i-- {
		times = append(times, time.Duration(i)*time.Microsecond)
	}
	for _, test := range []struct {
		times   []time.Duration
		q, want float64
	}{
		{times, 0.5, 50}, {times, 0.99, 99}, {times, 1, 100},
		{times[:1], 0.5, 1}, {times[:1], 0.99, 1}, {nil, 0.5, 0},
	} {
		if got := quantile(test.times, test.q); got != test.want {
			t.Errorf("quantile %v of %d times: got %v, want %v", test.q, len(test.times), got, test.want)
		}
	}
}

// A vector of 1 GB in one second, on four ranks.
func TestBandwidth(t *testing.T) {
	for name, want := range map[string]float64{
		"all_reduce": 1.5, "all_gather": 0.75, "reduce_scatter": 0.75, "all_to_all": 0.75,
		"gather": 0.75, "scatter": 0.75, "broadcast": 1, "reduce": 1, "send_recv": 1, "send_stream": 1,
	} {
		o, err := find(name)
		if err != nil {
			t.Fatal(err)
		}
		r := Result{Ranks: 4, Bytes: 1e9, P50: 1e6}
		r.bandwidth(o.bus)
		if r.Alg != 1 || r.Bus != want {
			t.Errorf("%s: got bandwidths %v and %v, want 1 and %v", name, r.Alg, r.Bus, want)
		}
	}
}
