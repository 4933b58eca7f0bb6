package main

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// texts are those of a drawing.
func texts(t *testing.T, svg string) string {
	t.Helper()
	var all []string
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return strings.Join(all, "\n")
		}
		if err != nil {
			t.Fatalf("the drawing is no XML: %v", err)
		}
		if c, ok := token.(xml.CharData); ok {
			all = append(all, strings.TrimSpace(string(c)))
		}
	}
}

func drawn(t *testing.T, input string) (svg, text string) {
	t.Helper()
	var b strings.Builder
	if err := run(nil, strings.NewReader(input), &b); err != nil {
		t.Fatal(err)
	}
	return b.String(), texts(t, b.String())
}

func TestResults(t *testing.T) {
	_, got := drawn(t, `{"op":"all_reduce","ranks":3,"bytes":8,"transport":"shm","encrypted":false,"p50_us":5.5,"algorithm":"flat"}
{"op":"all_reduce","ranks":3,"bytes":4096,"transport":"shm","encrypted":false,"p50_us":12,"algorithm":"ring"}
{"op":"scan","ranks":3,"bytes":8,"transport":"shm","encrypted":false,"p50_us":7,"algorithm":"flat"}
{"op":"barrier","ranks":3,"bytes":0,"transport":"shm","encrypted":false,"p50_us":7,"algorithm":"flat"}`)
	for _, want := range []string{"3 ranks, shm: median time", "all_reduce", "scan", "bytes", "10 µs"} {
		if !strings.Contains(got, want) {
			t.Errorf("the drawing has no text %q among\n%s", want, got)
		}
	}
	if strings.Contains(got, "barrier") || strings.Contains(got, "flat") {
		t.Errorf("barrier, which has no sizes, or an algorithm is among\n%s", got)
	}
}

func TestAlgorithms(t *testing.T) {
	var lines strings.Builder
	for _, bytes := range []int{8, 64} {
		for algorithm, shared := range map[string]bool{"ring": false, "staged": true} {
			fmt.Fprintf(&lines, `{"op":"all_reduce","ranks":4,"bytes":%d,"transport":"tcp","encrypted":true,"device":"cuda:0","algorithm":%q,"shared":%v,"predicted_us":1,"p50_us":2}`,
				bytes, algorithm, shared)
		}
	}
	svg, got := drawn(t, lines.String())
	for _, want := range []string{"all_reduce, 4 ranks, tcp (encrypted), on cuda:0: median time; dashed: predicted for memory of the host", "ring", "staged in memory"} {
		if !strings.Contains(got, want) {
			t.Errorf("the drawing has no text %q among\n%s", want, got)
		}
	}
	if n := strings.Count(svg, "stroke-dasharray"); n != 2 {
		t.Errorf("%d lines are dashed, want one for each algorithm", n)
	}
}

// TestSimulations: the six algorithms that come closest to the best are drawn, and the best of each size is circled.
func TestSimulations(t *testing.T) {
	simulations := func(bestMark bool) (lines string) {
		for size := range 3 {
			for i := range 9 {
				lines += fmt.Sprintf(`{"op":"all_reduce","ranks":1024,"bytes":%d,"topology":"flat","algorithm":"%c-way","time_us":%d,"busiest_bytes":8,"best":%v}`+"\n",
					8<<size, 'a'+i, 9-i+size, bestMark && i == 8)
			}
		}
		return lines
	}
	svg, got := drawn(t, simulations(true))
	plain, _ := drawn(t, simulations(false))
	for i := range 9 {
		name := string(rune('a'+i)) + "-way"
		if got, want := strings.Count(got, name), map[bool]int{true: 2}[i >= 3]; got != want {
			t.Errorf("%s stands in %d legends, want %d", name, got, want)
		}
	}
	if n := strings.Count(svg, "<path") - strings.Count(plain, "<path"); n != 3 {
		t.Errorf("%d points are circled, want one of each size, 3", n)
	}
	for _, want := range []string{"all_reduce, 1,024 ranks, flat: simulated time, the best of each size circled", "bytes over the busiest link between hosts"} {
		if !strings.Contains(got, want) {
			t.Errorf("the drawing has no text %q among\n%s", want, got)
		}
	}
}

func TestBadInput(t *testing.T) {
	for input, want := range map[string]string{
		"":                          "standard input is empty: want lines of nexar bench --json or nexar simulate --json",
		`{"op":"barrier"}`:          "nothing to draw",
		"all_reduce  p50  p99":      "standard input, line 1: invalid character",
		`{"op":"a","bytes":8} {"x"`: "standard input, line 2",
		`{"about":"Gloo, TCP"}`:     "standard input, line 1 has no op",
	} {
		if err := run(nil, strings.NewReader(input), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", input, err, want)
		}
	}
	if err := run([]string{"no-such-file"}, nil, io.Discard); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i, op := range []string{"reduce", "gather"} {
		files = append(files, filepath.Join(dir, op))
		if err := os.WriteFile(files[i], fmt.Appendf(nil, `{"op":%q,"ranks":2,"bytes":8,"transport":"mem","p50_us":1}`, op), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	if err := run(files, nil, &b); err != nil {
		t.Fatal(err)
	}
	if got := texts(t, b.String()); !strings.Contains(got, "reduce") || !strings.Contains(got, "gather") {
		t.Errorf("the drawing of two files has the texts\n%s", got)
	}
}
