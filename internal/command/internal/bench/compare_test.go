package bench

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/simulate"
)

// compareAll calls Compare on n ranks in this process and returns the results of rank 0.
func compareAll(t *testing.T, n int, cfg Config) (list []Comparison) {
	t.Helper()
	world(t, n, func(c *nexar.Comm) error {
		cfg := cfg
		cfg.Compared = func(r Comparison) {
			if c.Rank() != 0 {
				t.Errorf("rank %d gets results", c.Rank())
			}
			list = append(list, r)
		}
		return Compare(t.Context(), c, cfg)
	})
	return list
}

func TestCompareEveryCollective(t *testing.T) {
	require.NoRace(t, "it repeats other tests with many calls")
	for _, n := range []int{1, 2, 4} {
		list := compareAll(t, n, Config{MaxBytes: 20_000, Factor: 1 << 20, Runs: 2})
		ops := map[string]int{}
		for _, c := range list {
			ops[c.Op]++
			if c.Ranks != n || c.Transport != "mem" || c.Rounds != roundsMin || c.Runs != 2 {
				t.Errorf("got %+v, want %d ranks over mem, and %d rounds of 2 runs", c, n, roundsMin)
			}
			if problem := wrongWays(c); problem != "" {
				t.Errorf("%d ranks, %s of %d bytes: %s", n, c.Op, c.Bytes, problem)
			}
		}
		for _, op := range Collectives() {
			want := 2
			if op == "barrier" {
				want = 1
			}
			if ops[op] != want {
				t.Errorf("%d ranks, %s: got %d comparisons, want %d", n, op, ops[op], want)
			}
		}
		if len(ops) != len(Collectives()) {
			t.Errorf("got comparisons of %v, want those of %v", ops, Collectives())
		}
	}
}

// wrongWays describes an error in the ways of a comparison, or returns "".
func wrongWays(c Comparison) string {
	fastest, best := 0, c.Ways[0].P50
	for i, w := range c.Ways {
		best = min(best, w.P50)
		switch {
		case w.Op != c.Op || w.Bytes != c.Bytes || w.Ranks != c.Ranks || w.Transport != c.Transport:
			return fmt.Sprintf("%+v is not of %s", w, c.Op)
		case w.Chosen != (i == 0):
			return fmt.Sprintf("way %d is chosen: %v", i, w.Chosen)
		case w.Wrong != 0:
			return fmt.Sprintf("%s has %d wrong elements", w.Algorithm, w.Wrong)
		case w.P50 <= 0 || w.Q1 > w.P50 || w.Q3 < w.P50 || w.Channels < 1:
			return fmt.Sprintf("%s: times %v, %v, %v on %d channels", w.Algorithm, w.Q1, w.P50, w.Q3, w.Channels)
		}
		if w.Fastest {
			fastest = i
		}
	}
	if c.Ways[fastest].P50 != best || !c.Ways[fastest].Fastest {
		return fmt.Sprintf("way %d is the fastest", fastest)
	}
	return ""
}

// TestCompareKnowsWhatIsPinned: a pinned algorithm counts as chosen, and Compare leaves no pin.
func TestCompareKnowsWhatIsPinned(t *testing.T) {
	const pinned = "reduce_scatter=ring/2"
	world(t, 4, func(c *nexar.Comm) error {
		before, err := c.Algorithms("reduce_scatter", 1<<20)
		if err != nil {
			return err
		}
		if err := c.SetAlgorithms(pinned); err != nil {
			return err
		}
		err = Compare(t.Context(), c, Config{Ops: []string{"reduce_scatter"}, MinBytes: 1 << 20, MaxBytes: 1 << 20, Runs: 1, Compared: func(r Comparison) {
			if w := r.Ways[0]; w.Algorithm != "ring" || w.Channels != 2 || w.Shared || !w.Chosen || w.ChosenBy != "setting" {
				t.Errorf("chosen is %+v, pinned is %s", w, pinned)
			}
		}})
		if err != nil {
			return err
		}
		if after, err := c.Algorithms("reduce_scatter", 1<<20); err != nil || !reflect.DeepEqual(after, before) {
			return fmt.Errorf("afterwards there are %v, before %v (%v)", after, before, err)
		}
		return nil
	})
}

// TestCompareIsOfTheAlgorithms: every algorithm is pinned during its turn, and a wrong result
// is counted for the algorithm that gave it.
func TestCompareIsOfTheAlgorithms(t *testing.T) {
	const n, count = 2, 1000
	good, err := find("all_reduce")
	if err != nil {
		t.Fatal(err)
	}
	world(t, n, func(c *nexar.Comm) error {
		list, err := c.Algorithms("all_reduce", count*elem)
		if err != nil {
			return err
		}
		var turns []nexar.Algorithm
		bad := *good
		bad.run = func(ctx context.Context, c *nexar.Comm, dst, src []float32) error {
			now, err := c.Algorithms("all_reduce", count*elem)
			if err != nil {
				return err
			}
			turns = append(turns, now[0])
			if err := good.run(ctx, c, dst, src); err != nil {
				return err
			}
			if now[0].Name == list[1].Name {
				dst[count-1]++
			}
			return nil
		}
		spoilt := cell{&bad, count * elem}
		r, err := newRank(c, []cell{spoilt}).compare(t.Context(), spoilt, list[:3], pace{fixed: 1}, 0)
		if err != nil {
			return err
		}
		var want []nexar.Algorithm
		for _, first := range []int{0, 0, 0, 1, 2, 0, 1} { // two rounds that are not counted, and five that are
			want = append(append(want, list[first:3]...), list[:first]...)
		}
		for i := range want {
			want[i].ChosenBy = "setting"
		}
		if !slices.Equal(turns, want) {
			t.Errorf("rank %d: turns of %v, want %v", c.Rank(), turns, want)
		}
		for i, w := range r.Ways {
			bad := int64(0)
			if i == 1 {
				bad = n * (2 + roundsMin)
			}
			if w.Wrong != bad {
				t.Errorf("rank %d: %s has %d wrong elements, want %d", c.Rank(), w.Algorithm, w.Wrong, bad)
			}
		}
		return nil
	})
}

func TestWorthwhile(t *testing.T) {
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	named := func(name string, predicted int) nexar.Algorithm {
		return nexar.Algorithm{Name: name, Channels: 1, Predicted: us(predicted)}
	}
	for _, test := range []struct {
		name       string
		list       []nexar.Algorithm
		kept, left int
	}{
		{"all are near", []nexar.Algorithm{named("a", 10), named("b", 80)}, 2, 0},
		{"one is far", []nexar.Algorithm{named("a", 10), named("b", 80), named("c", 81)}, 2, 1},
		{"what is chosen is far", []nexar.Algorithm{named("a", 1000), named("b", 10), named("c", 90)}, 2, 1},
		{"what is chosen is not known", []nexar.Algorithm{named("a", 0), named("b", 10), named("c", 90)}, 2, 1},
		{"nothing is known", []nexar.Algorithm{named("a", 0), named("b", 0)}, 2, 0},
	} {
		kept, left := worthwhile(test.list)
		if len(kept) != test.kept || len(left) != test.left || kept[0] != test.list[0] {
			t.Errorf("%s: kept %v, left out %v", test.name, kept, left)
		}
	}
}

func TestQuartiles(t *testing.T) {
	var w Way
	w.quartiles([]float64{5, 0, 3, 0, 1, 0, 4, 0, 2, 0}, 0, 2)
	if w.Q1 != 2 || w.P50 != 3 || w.Q3 != 4 {
		t.Errorf("got %v, %v, %v, want 2, 3, 4", w.Q1, w.P50, w.Q3)
	}
	if w.quartiles([]float64{7}, 0, 1); w.Q1 != 7 || w.P50 != 7 || w.Q3 != 7 {
		t.Errorf("of one time: got %v, %v, %v", w.Q1, w.P50, w.Q3)
	}
}

// TestRounds: there are as many rounds as the time allows, at least five. Turns of several runs
// come before more rounds.
func TestRounds(t *testing.T) {
	for _, test := range []struct {
		name         string
		pace         pace
		sweep, left  time.Duration
		rounds, runs int
	}{
		{"much time", pace{}, time.Millisecond, time.Hour, roundsMax, turnMax},
		{"a clock that stands still", pace{}, 0, time.Second, roundsMax, turnMax},
		{"time for 40 runs", pace{}, time.Millisecond, 40 * time.Millisecond, 10, 4},
		{"time for 12 runs", pace{}, time.Millisecond, 12 * time.Millisecond, roundsMin, 2},
		{"no time", pace{}, time.Second, -time.Second, roundsMin, 1},
		{"fixed", pace{fixed: 3}, time.Second, time.Hour, roundsMin, 3},
	} {
		if rounds, runs := test.pace.rounds(test.sweep, test.left); rounds != test.rounds || runs != test.runs {
			t.Errorf("%s: got %d rounds of %d runs, want %d of %d", test.name, rounds, runs, test.rounds, test.runs)
		}
	}
}

func TestCompareMessages(t *testing.T) {
	world(t, 1, func(c *nexar.Comm) error {
		err := Compare(t.Context(), c, Config{Ops: []string{"send_recv"}})
		if err == nil || !strings.Contains(err.Error(), `unknown collective "send_recv"`) {
			t.Errorf("got error %v, want one that names the unknown collective", err)
		}
		return nil
	})
}

func TestJudge(t *testing.T) {
	of := func(op string, bytes int64, times ...float64) Comparison {
		c := Comparison{Op: op, Bytes: bytes}
		for i, p50 := range times {
			c.Ways = append(c.Ways, Way{Op: op, Bytes: bytes, P50: p50, Chosen: i == 0, Fastest: p50 == slices.Min(times)})
		}
		return c
	}
	got := Judge([]Comparison{
		of("all_reduce", 8, 10, 20), of("all_reduce", 64, 23, 20, 30), of("all_reduce", 512, 30, 20, 40), of("all_reduce", 4096, 24, 20),
		of("barrier", 0, 10),
	})
	if len(got) != 2 {
		t.Fatalf("got %d verdicts, want 2", len(got))
	}
	if v := got[0]; v.Op != "all_reduce" || v.Sizes != 4 || v.Near != 2 || v.Worst != 1.5 || v.Chosen.Bytes != 512 || v.Fastest.P50 != 20 {
		t.Errorf("got %+v", v)
	}
	if v := got[1]; v.Op != "barrier" || v.Sizes != 1 || v.Near != 1 || v.Worst != 1 {
		t.Errorf("got %+v", v)
	}
}

// TestOpsHaveEveryCollective: every collective can be measured.
func TestOpsHaveEveryCollective(t *testing.T) {
	got, want := slices.Sorted(slices.Values(Collectives())), slices.Sorted(slices.Values(simulate.Collectives()))
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
