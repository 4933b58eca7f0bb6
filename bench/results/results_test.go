package results

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const output = `a launcher says hello
{"about":"a system, v1"}
{"op":"all_reduce","bytes":8,"ranks":2,"rank":1,"iters":10,"median_us":3.5,"wrong":0}
{"op": "all_reduce", "bytes": 8, "ranks": 2, "rank": 0, "iters": 10, "median_us": 2.5, "wrong": 1}

{"op":"scan","unsupported":"what is a scan?"}
{"op":"barrier","bytes":0,"failed":"no end"}
`

func TestParseAndMerge(t *testing.T) {
	lines, err := Parse([]byte(output))
	if err != nil || len(lines) != 5 {
		t.Fatalf("got %d lines, %v, want 5", len(lines), err)
	}
	got, about, err := Merge(3, "s", 2, lines)
	want := []Entry{
		{Round: 3, System: "s", Op: "all_reduce", Bytes: 8, Iters: 10, US: 3.5, Wrong: 1},
		{Round: 3, System: "s", Op: "scan", Failed: "unsupported: what is a scan?"},
		{Round: 3, System: "s", Op: "barrier", Failed: "no end"},
	}
	if err != nil || about != "a system, v1" || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %q, %v, want %+v", got, about, err, want)
	}
}

func TestParseBroken(t *testing.T) {
	if _, err := Parse([]byte("{\"op\":\n")); err == nil {
		t.Error("an incomplete JSON object: no error")
	}
}

// TestMergeIncomplete checks that Merge refuses measurements that some ranks lack, and impossible
// ones.
func TestMergeIncomplete(t *testing.T) {
	whole := []Line{{Op: "barrier", Ranks: 2, Iters: 3, Median: 1}, {Op: "barrier", Ranks: 2, Rank: 1, Iters: 3, Median: 2}}
	for name, extra := range map[string]Line{
		"a rank is missing": {Op: "scan", Ranks: 2, Iters: 3, Median: 1},
		"a larger world":    {Op: "scan", Ranks: 3, Iters: 3, Median: 1},
		"rank out of range": {Op: "scan", Ranks: 2, Rank: 2, Iters: 3, Median: 1},
		"no iterations":     {Op: "scan", Ranks: 2, Median: 1},
	} {
		got, _, err := Merge(1, "s", 2, append(whole[:2:2], extra))
		if err == nil || len(got) > 1 || len(got) == 1 && got[0].US != 2 {
			t.Errorf("%s: got %+v, %v, want an error and at most the barrier", name, got, err)
		}
	}
}

// sample returns a file with two peers and one system of nexar over ten rounds: the processors are near in the first five
// and far in the others, except that they move in the last.
func sample() *File {
	f := &File{Header: Header{
		Setting: "s-2", Title: "a setting", Ranks: 2, Day: "2026-01-02", Rounds: 10, Budget: 0.5, Busy: 1.5,
		Machine: Machine{CPU: "C", Cores: 2, Memory: "1 GiB", Kernel: "K"}, Software: map[string]string{"go": "1"},
		Systems: []System{
			{Name: "a", Label: "A", About: "A, v1", Command: "run a"}, {Name: "b", Label: "B"}, {Name: "c", Label: "C", Missing: "no wheel"},
			{Name: "x", Label: "nexar X", Ours: true},
		},
	}}
	times := map[string][]float64{
		"a": {10, 11, 12, 13, 99, 30, 30, 30, 30, 1}, "b": {20, 20, 20, 20, 20, 40, 40, 40, 40, 1}, "x": {5, 6, 5, 6, 5, 60, 60, 60, 60, 1},
	}
	for round := range 10 {
		for _, s := range []string{"a", "b", "x"} {
			e := Entry{Round: round + 1, System: s, Op: "all_reduce", Bytes: 8, Iters: 30, US: times[s][round], Before: 0.16, After: 0.17}
			if round >= 5 {
				e.Before = 0.59
			}
			if round >= 5 && round < 9 {
				e.After = 0.6
			}
			f.Entries = append(f.Entries, e)
			e.Untouched, e.US = true, e.US/2
			if s == "x" {
				e.US /= 2
			}
			f.Entries = append(f.Entries, e)
			e.Untouched, e.Bytes, e.Wrong = false, 4096, 7
			if s == "x" {
				f.Entries = append(f.Entries, Entry{Round: round + 1, System: s, Op: "all_reduce", Bytes: 4096, Failed: fmt.Sprint("hung ", round), Before: e.Before, After: e.After})
			} else {
				f.Entries = append(f.Entries, e)
			}
			f.Entries = append(f.Entries, Entry{Round: round + 1, System: s, Op: FirstSecond, Bytes: 8, US: float64(round + 1), Before: e.Before, After: e.After})
		}
	}
	classify([]*File{f})
	return f
}

func TestStates(t *testing.T) {
	states, turns := sample().States()
	if len(states) != 2 || turns != 60 || states[0].State != Near || states[0].Turns != 30 || states[1].State != Far || states[1].Turns != 24 {
		t.Errorf("got %+v of %d turns, want 30 near and 24 far ones of 60", states, turns)
	}
	if d := states[1].RoundTrip - 0.595; d > 1e-9 || d < -1e-9 {
		t.Errorf("far: got a round trip of %v µs, want 0.595", states[1].RoundTrip)
	}
}

// TestTable checks that equal states alone are compared, and the marks.
func TestTable(t *testing.T) {
	f := sample()
	states, _ := f.States()
	want := `| | 8 B | 4 KiB | mean |
|---|--:|--:|--:|
| all_reduce ▼ | 2.40 / **0.50** | fails / fails | 2.40 / 0.50 |
`
	if got := f.Table(f.Header.Systems[3], false, states); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want = `| | 8 B | 4 KiB | mean |
|---|--:|--:|--:|
| all_reduce | 4.80 / 1.00 | – / – | 4.80 / 1.00 |
`
	if got := f.Table(f.Header.Systems[3], true, states); strings.ReplaceAll(got, "≈", "") != want {
		t.Errorf("untouched: got\n%swant\n%s", got, want)
	}
	f.Entries = f.Entries[:8]
	if got := f.Table(f.Header.Systems[3], false, states); strings.Contains(got, "2.40") {
		t.Errorf("one turn: got\n%s", got)
	}
}

func TestFew(t *testing.T) {
	for _, test := range []struct {
		samples, bytes int
		want           bool
	}{{99, 8, true}, {100, 8, false}, {99, 8<<20 - 4, true}, {9, 8 << 20, true}, {10, 8 << 20, false}} {
		if got := (Cell{Samples: test.samples}).Few(test.bytes); got != test.want {
			t.Errorf("%d samples of %d bytes: got %v, want %v", test.samples, test.bytes, got, test.want)
		}
	}
}

func TestTally(t *testing.T) {
	f := sample()
	ours := f.Header.Systems[3]
	if got := f.Tally(ours, []string{"all_reduce"}, false, Near); got.Faster != 1 || got.Points() != 1 || got.Mean < 2.39 || got.Mean > 2.41 {
		t.Errorf("near: got %+v, want one that is faster, 2.4 times", got)
	}
	if got := f.Tally(ours, []string{"all_reduce"}, false, Far); got.Slower != 1 || got.Points() != 1 {
		t.Errorf("far: got %+v, want one that is slower", got)
	}
}

func TestCompare(t *testing.T) {
	at := func(turns int, us, low, high float64) Cell {
		return Cell{Turns: turns, US: us, Low: low, High: high}
	}
	wrong := at(5, 10, 10, 10)
	wrong.Wrong = true
	for _, test := range []struct {
		name        string
		ours, other Cell
		want        Verdict
		times       float64
	}{
		{"faster", at(5, 10, 9, 11), at(5, 20, 18, 22), Faster, 2},
		{"slower", at(5, 20, 18, 22), at(5, 10, 9, 11), Slower, 0.5},
		{"overlap", at(5, 10, 9, 19), at(5, 20, 18, 22), Level, 2},
		{"too few turns", at(2, 10, 9, 11), at(5, 20, 18, 22), Level, 2},
		{"wrong", at(5, 20, 18, 22), wrong, Unknown, 0},
		{"none", at(5, 20, 18, 22), Cell{}, Unknown, 0},
	} {
		if v, times := Compare(test.ours, test.other); v != test.want || times != test.times {
			t.Errorf("%s: got %v, %v, want %v, %v", test.name, v, times, test.want, test.times)
		}
	}
}

func TestQuantile(t *testing.T) {
	for _, test := range []struct {
		values  []float64
		q, want float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0.25, 7}, {[]float64{1, 2}, 0.5, 1.5},
		{[]float64{1, 2, 3, 4, 5}, 0.25, 2}, {[]float64{1, 2, 3, 4, 5}, 0.75, 4}, {[]float64{1, 2, 3}, 1, 3},
	} {
		if got := quantile(test.values, test.q); got != test.want {
			t.Errorf("quantile %v of %v: got %v, want %v", test.q, test.values, got, test.want)
		}
	}
}

func TestTexts(t *testing.T) {
	for us, want := range map[float64]string{
		0.04: "0.04 µs", 3.14: "3.14 µs", 9.96: "10 µs", 999: "999 µs", 999.9: "1.0 ms", 12345: "12 ms", 2.5e6: "2.5 s",
	} {
		if got := Duration(us); got != want {
			t.Errorf("%v us: got %q, want %q", us, got, want)
		}
	}
	for ratio, want := range map[float64]string{0.004: "0.00", 9.99: "9.99", 9.999: "10", 123.4: "123"} {
		if got := Ratio(ratio); got != want {
			t.Errorf("%v: got %q, want %q", ratio, got, want)
		}
	}
	for bytes, want := range map[int]string{0: "", 8: "8 B", 1000: "1000 B", 4096: "4 KiB", 64 << 20: "64 MiB"} {
		if got := Size(bytes); got != want {
			t.Errorf("%d bytes: got %q, want %q", bytes, got, want)
		}
	}
}

func TestFilesAndPage(t *testing.T) {
	dir := t.TempDir()
	first, second := sample(), sample()
	second.Header.Setting, second.Header.Title = "r-2", "another setting"
	for _, f := range []*File{first, second} {
		f.far = 0 // is not written
		if err := f.Write(filepath.Join(dir, f.Header.Setting+Suffix)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := ReadAll(dir, []string{"s-2", "none", "r-2"})
	if err != nil || !reflect.DeepEqual(files, []*File{first, second}) {
		t.Fatalf("got %+v, %v, want the written files in the given order", files, err)
	}
	page := filepath.Join(dir, "results.md")
	if err := WritePage(page, files); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| a setting (busy machine: a trial) | X | 2.40 | 1, 0, 0 | **0.50** | 0, 0, 1 |", "## another setting", "**Other work used 1.5 of 2 processors", "results/s-2.svg", "run a", "go 1",
		"**Missing: C**, no wheel", "near: 0.17 µs, 30 turns; far: 0.59 µs, 24 turns; 6 turns", "| A | 10 | 5.50 µs | 10 µs |", "x, all_reduce 4 KiB: hung 0 (10×)",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not contain %q:\n%s", want, text)
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, drawings, "r-2.svg"))
	if err != nil || !bytes.Contains(svg, []byte("nexar X")) || !bytes.Contains(svg, []byte("near (0.17 µs)")) {
		t.Errorf("the drawing has no legend or no title: %v", err)
	}
}

func TestReadBroken(t *testing.T) {
	for name, text := range map[string]string{"no header": "{}\n", "no JSON": "{\"setting\":\"s\"}\nx\n", "empty": ""} {
		file := filepath.Join(t.TempDir(), "a"+Suffix)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	if _, err := (&File{}).Draw(); err == nil {
		t.Error("Draw of an empty file: no error")
	}
}
