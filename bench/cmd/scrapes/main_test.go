package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-rank" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestMeasure: a short measurement has times and an interval.
func TestMeasure(t *testing.T) {
	var out strings.Builder
	if err := measure(t.Context(), 6, 50*time.Millisecond, &out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !regexp.MustCompile(`^all-reduce of 8 B in shared memory, 6 turns: \d+\.\d+ µs without scrapes, \d+\.\d+ µs .*\nmetrics cost [+-]\d+\.\d+ % \(95 %: `).MatchString(text) {
		t.Errorf("got %s", text)
	}
	if err := measure(t.Context(), 1, time.Second, &out); err == nil {
		t.Error("one turn has no interval")
	}
}

// TestInterval: the bounds are those of the sign test.
func TestInterval(t *testing.T) {
	list := make([]float64, 100)
	for i := range list {
		list[i] = float64((i*37)%100 + 1)
	}
	if low, median, high := interval(list); low != 41 || median != 51 || high != 61 {
		t.Errorf("got %v, %v, %v, want 41, 51, 61", low, median, high)
	}
}
