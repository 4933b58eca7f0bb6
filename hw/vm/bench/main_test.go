//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"
)

// TestBench: the ranks of a world measure all-reduces over TCP, which needs no device, and write the table once.
func TestBench(t *testing.T) {
	var out strings.Builder
	if err := bench(t.Context(), []string{"-transport", "tcp", "-max", "512", "-iters", "3"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"^all-reduce over tcp, 2 ranks", "^ *bytes +time/op", "^ *8 ", "^ *128 "} { // The width depends on the times.
		if len(regexp.MustCompile("(?m)"+text).FindAllString(out.String(), -1)) != 1 {
			t.Errorf("the output has not %q once:\n%s", text, out.String())
		}
	}
}

// TestNothingWritten: without RDMA no payload is written remotely, which fails if it is required.
func TestNothingWritten(t *testing.T) {
	var out strings.Builder
	err := bench(t.Context(), []string{"-transport", "tcp", "-suite", "8", "-require-written"}, &out)
	if err == nil || err.Error() != "no byte was written remotely" {
		t.Errorf("error %v, want one since no byte was written remotely", err)
	}
}

func TestBenchFlags(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"x", `unexpected argument "x"`},
		{"-n 1", "two in the world"},
		{"-max 7", "-max 7"},
		{"-transport shm", `-transport "shm": want rdma or tcp`},
		{"-heartbeat-timeout 0s", "must be positive"},
	} {
		var out strings.Builder
		if err := bench(t.Context(), strings.Fields(test.args), &out); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("bench %s: error %v, want %q", test.args, err, test.want)
		}
	}
}
