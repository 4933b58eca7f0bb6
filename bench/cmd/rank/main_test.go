package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

func TestAllOperationsInOneProcess(t *testing.T) {
	for _, n := range []string{"1", "3", "4"} {
		var out bytes.Buffer
		err := run(t.Context(), []string{
			"-local", n, "-budget", "0.01", "-warm", "0.001", "-untouched", "1", "-sizes", "8,4096,100000",
			"-ops", "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all,barrier,copy_only",
		}, &out)
		if err != nil {
			t.Fatal(err)
		}
		lines, ranks := 0, int(n[0]-'0')
		for d := json.NewDecoder(&out); d.More(); lines++ {
			var s struct {
				sample
				About string
			}
			if err := d.Decode(&s); err != nil {
				t.Fatal(err)
			}
			if s.About == "" && (s.Wrong != 0 || s.Ranks != ranks || s.Iters < 3) {
				t.Errorf("got %+v, want %d ranks, at least 3 iterations, and no wrong element", s.sample, ranks)
			}
		}
		if want := 1 + ranks*(6*3*2+1); lines != want {
			t.Errorf("%s ranks: got %d lines, want %d", n, lines, want)
		}
	}
}

func TestMessagesInOneProcess(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-local", "3", "-budget", "0.01", "-sizes", "4096", "-ops", "send_recv"}, &out); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(out.Bytes(), []byte(`"wrong":0`)); got != 3 {
		t.Errorf("got %d ranks with correct results, want 3:\n%s", got, out.String())
	}
}

func TestWrongTransportIsNotMeasured(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-local", "2", "-sizes", "8", "-ops", "barrier", "-want", "shm"}, &out)
	if err == nil || out.Len() > 0 {
		t.Errorf("got error %v and output %q, want an error and no output", err, out.String())
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
