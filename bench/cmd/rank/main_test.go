package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// inOneProcess runs n ranks with the flags, and returns their lines.
func inOneProcess(t *testing.T, n int, args ...string) ([]sample, error) {
	t.Helper()
	work, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	comms, err := nexar.Local(t.Context(), n, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	say := &lines{out: &out}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, c := range comms {
		all.Go(func() { errs[i] = errors.Join(work.measure(t.Context(), c, say), c.Close()) })
	}
	all.Wait()
	var samples []sample
	for d := json.NewDecoder(&out); d.More(); {
		var s sample
		if err := d.Decode(&s); err != nil {
			t.Fatal(err)
		}
		samples = append(samples, s)
	}
	return samples, errors.Join(errs...)
}

func TestAllOperations(t *testing.T) {
	for _, n := range []int{1, 3, 4} {
		samples, err := inOneProcess(t, n, "-budget", "0.01", "-warm", "0.001", "-untouched", "1", "-sizes", "8,4096,100000",
			"-ops", "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,barrier")
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			if s.Op != "" && (s.Wrong != 0 || s.Ranks != n || s.Iters < runsFirst) {
				t.Errorf("got %+v, want %d ranks, at least %d iterations, and no wrong element", s, n, runsFirst)
			}
		}
		if got, want := len(samples), 1+n*(5*3*2+1); got != want { // One line describes the system.
			t.Errorf("%d ranks: got %d lines, want %d", n, got, want)
		}
	}
}

// TestRewritten checks that the vectors are written anew before each iteration, and not where they are to stay untouched.
func TestRewritten(t *testing.T) {
	for untouched, want := range map[bool]float32{false: 2, true: 0} {
		comms, err := nexar.Local(t.Context(), 2, nexar.Config{})
		if err != nil {
			t.Fatal(err)
		}
		sum, err := find("all_reduce")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, c := range comms {
			all.Go(func() {
				r := &rank{comm: c, src: make([]float32, 2), dst: make([]float32, 2)}
				_, err := r.measure(t.Context(), sum, 8, task{budget: 10 * time.Millisecond, untouched: untouched})
				if err != nil || r.dst[1] != want {
					t.Errorf("untouched %v: got %v, %v, want a sum of %v after the last iteration", untouched, r.dst, err, want)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
}

func TestMessages(t *testing.T) {
	samples, err := inOneProcess(t, 3, "-budget", "0.01", "-sizes", "4096", "-ops", "send_recv")
	if err != nil || len(samples) != 4 || samples[1].Wrong+samples[2].Wrong+samples[3].Wrong != 0 {
		t.Errorf("got %+v, %v, want 3 ranks with correct results", samples, err)
	}
}

func TestWrongTransportIsNotMeasured(t *testing.T) {
	if samples, err := inOneProcess(t, 2, "-sizes", "8", "-ops", "barrier", "-want", "shm"); err == nil || len(samples) > 0 {
		t.Errorf("got error %v and %+v, want an error and no output", err, samples)
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-ops", "no_such", "-sizes", "8"},
		{"-ops", "barrier"},
		{"-ops", "barrier", "-sizes", "8:3"},
		{"-ops", "barrier", "-sizes", "2"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q: got no error, want one", args)
		}
	}
}

// TestMore checks that the number of runs adapts in both directions.
func TestMore(t *testing.T) {
	for _, test := range []struct {
		done, last int
		took, left time.Duration
		want       int64
	}{
		{3, 3, 3 * time.Millisecond, time.Second, 6},                // twice as many
		{100, 60, 60 * time.Millisecond, 50 * time.Millisecond, 50}, // as many as fit
		{9, 6, time.Millisecond, time.Millisecond * 2 / 3, 4},       // a slow start before
		{3, 3, 300 * time.Millisecond, 99 * time.Millisecond, 0},    // not even one
		{3, 3, time.Minute, -time.Minute, 0},                        // too late
		{3, 3, 0, time.Second, 6},                                   // a clock that stands
		{runsMax - 1, runsFirst, runsFirst, time.Second, 1},         // up to the maximum
		{runsMax, runsMax / 2, time.Millisecond, time.Second, 0},    // the maximum
	} {
		if got := more(test.done, test.last, test.took, test.left); got != test.want {
			t.Errorf("%d done, the last %d in %v, %v left: got %d, want %d", test.done, test.last, test.took, test.left, got, test.want)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		times []time.Duration
		want  float64
	}{
		{[]time.Duration{3000, 1000, 2000}, 2},
		{[]time.Duration{4000, 1000, 2000, 3000}, 2.5},
		{[]time.Duration{500}, 0.5},
	} {
		if got := median(test.times); got != test.want {
			t.Errorf("got %v, want %v", got, test.want)
		}
	}
}
