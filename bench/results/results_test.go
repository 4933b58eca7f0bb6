package results

import (
	"bytes"
	"compress/gzip"
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

// sample returns a file with two other systems, one of nexar and a bound, over five rounds.
func sample() *File {
	f := &File{Header: Header{
		Setting: "s-2", Title: "a setting", Ranks: 2, Day: "2026-01-02", Rounds: 5, Budget: 0.5,
		Machine: Machine{CPU: "C", Cores: 2, Memory: "1 GiB", Kernel: "K"}, Software: map[string]string{"go": "1"},
		Systems: []System{
			{Name: "a", Label: "A", About: "A, v1", Command: "run a"}, {Name: "b", Label: "B"},
			{Name: "x", Label: "nexar X", Ours: true}, {Name: "copy", Label: "copy", Bound: true},
		},
	}}
	times := map[string][]float64{
		"a": {10, 11, 12, 13, 99}, "b": {20, 20, 20, 20, 20}, "x": {5, 6, 5, 6, 5}, "copy": {1, 1, 1, 1, 1},
	}
	for round := range 5 {
		for _, s := range f.Header.Systems {
			us := times[s.Name][round]
			e := Entry{Round: round + 1, System: s.Name, Op: "all_reduce", Bytes: 8, Iters: 9, US: us}
			if s.Bound {
				e.Op = boundOp
			}
			f.Entries = append(f.Entries, e)
			if s.Name == "b" {
				e.Bytes, e.Wrong = 4096, 7
				f.Entries = append(f.Entries, e, Entry{Round: round + 1, System: "a", Op: "all_reduce", Bytes: 4096, Failed: fmt.Sprint("hung ", round)})
			}
		}
	}
	return f
}

func TestTable(t *testing.T) {
	want := `| bytes | A | B | nexar X | copy | best other ÷ X |
|--:|--:|--:|--:|--:|--:|
| 8 B | 12 µs | 20 µs | **5.0 µs** | 1.0 µs | 2.40× |
| 4 KiB | fails | wrong | — | — | — |
`
	if got := sample().Table("all_reduce"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTally(t *testing.T) {
	f := sample()
	s := f.Header.Systems
	if got, want := f.Tally(s[2], s[1]), (Tally{Faster: 1, Mean: 4}); got.Faster != want.Faster || got.Points() != 1 || got.Mean < 3.99 || got.Mean > 4.01 {
		t.Errorf("X compared with B: got %+v, want %+v", got, want)
	}
	if got := f.Tally(s[1], s[2]); got.Slower != 1 {
		t.Errorf("B compared with X: got %+v, want one that is slower", got)
	}
}

func TestCompare(t *testing.T) {
	at := func(rounds int, us, low, high float64) Cell {
		return Cell{Rounds: rounds, US: us, Low: low, High: high}
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
		{"too few rounds", at(2, 10, 9, 11), at(5, 20, 18, 22), Level, 2},
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
		0.04: "0.04 µs", 3.14: "3.1 µs", 9.96: "10 µs", 999: "999 µs", 999.9: "1.0 ms", 12345: "12 ms", 2.5e6: "2.5 s",
	} {
		if got := Duration(us); got != want {
			t.Errorf("%v us: got %q, want %q", us, got, want)
		}
	}
	for bytes, want := range map[int]string{0: "0 B", 8: "8 B", 1000: "1000 B", 4096: "4 KiB", 64 << 20: "64 MiB"} {
		if got := Size(bytes); got != want {
			t.Errorf("%d bytes: got %q, want %q", bytes, got, want)
		}
	}
}

func TestFilesAndPage(t *testing.T) {
	dir := t.TempDir()
	raw := filepath.Join(dir, "results")
	if err := os.Mkdir(raw, 0o755); err != nil {
		t.Fatal(err)
	}
	first, second := sample(), sample()
	second.Header.Setting, second.Header.Title = "r-2", "another setting"
	for _, f := range []*File{first, second} {
		if err := f.Write(filepath.Join(raw, f.Header.Setting+Suffix)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := ReadAll(raw, []string{"s-2", "r-2"})
	if err != nil || !reflect.DeepEqual(files, []*File{first, second}) {
		t.Fatalf("got %+v, %v, want the written files in the given order", files, err)
	}
	page := filepath.Join(dir, "results.md")
	if err := WritePage(page, "results", files); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| nexar X | B | 1 | 0 | 0 | 4.00× |", "## another setting", "results/s-2.svg", "run a", "| go | 1 |",
		"- A, all_reduce of 4 KiB: hung 0 (5×)",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	svg, err := os.ReadFile(filepath.Join(raw, "r-2.svg"))
	if err != nil || !bytes.Contains(svg, []byte("nexar X")) {
		t.Errorf("the drawing has no legend: %v", err)
	}
}

func TestReadBroken(t *testing.T) {
	for name, text := range map[string]string{"no header": "{}\n", "not compressed": "{\"setting\":\"s\"}\n", "no JSON": "{\"setting\":\"s\"}\nx\n"} {
		file := filepath.Join(t.TempDir(), "a"+Suffix)
		var data bytes.Buffer
		z := gzip.NewWriter(&data)
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if name == "not compressed" {
			data.Reset()
			data.WriteString(text)
		}
		if err := os.WriteFile(file, data.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v, want an error that names the file", name, err)
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	if err := (&File{}).Draw(new(bytes.Buffer)); err == nil {
		t.Error("Draw of an empty file: no error")
	}
}
