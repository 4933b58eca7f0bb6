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
			"-local", n, "-budget", "0.01", "-points", "8:3:1,4096:5:1,100000:3:0",
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
		if want := 1 + ranks*(6*3+1); lines != want {
			t.Errorf("%s ranks: got %d lines, want %d", n, lines, want)
		}
	}
}

func TestMessagesInOneProcess(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-local", "3", "-points", "4096:5:1", "-ops", "send_recv"}, &out); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(out.Bytes(), []byte(`"wrong":0`)); got != 3 {
		t.Errorf("got %d ranks with correct results, want 3:\n%s", got, out.String())
	}
}

func TestWrongTransportIsNotMeasured(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-local", "2", "-points", "8:3:0", "-ops", "barrier", "-want", "shm"}, &out)
	if err == nil || out.Len() > 0 {
		t.Errorf("got error %v and output %q, want an error and no output", err, out.String())
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-ops", "no_such", "-points", "8:3:1"},
		{"-ops", "barrier"},
		{"-ops", "barrier", "-points", "8"},
		{"-ops", "barrier", "-points", "8:2:1"},
		{"-ops", "barrier", "-points", "2:3:1"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q: got no error, want one", args)
		}
	}
}

func TestFit(t *testing.T) {
	for _, test := range []struct {
		done, iters  int
		budget, took time.Duration
		want         int64
	}{
		{3, 100, time.Second, 3 * time.Millisecond, 100},
		{3, 100, time.Second, 300 * time.Millisecond, 10},
		{3, 100, time.Second, time.Minute, 3},
		{12, 100, time.Second, time.Minute, 12},
		{3, 100, time.Second, 0, 100},
	} {
		if got := fit(test.done, test.iters, test.budget, test.took); got != test.want {
			t.Errorf("%d of %d in %v, budget %v: got %d, want %d", test.done, test.iters, test.took, test.budget, got, test.want)
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
