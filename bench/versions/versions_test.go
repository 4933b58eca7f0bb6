package versions

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fake returns a script that prints lines as "nexar bench" does, with the same time for all operations.
func fake(t *testing.T, micros float64, wrong int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nexar")
	script := fmt.Sprintf(`#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --op ] && ops=$2; shift; done
for op in $(echo "$ops" | tr , ' '); do echo "{\"op\":\"$op\",\"p50_us\":%v,\"wrong\":%d}"; done
`, micros, wrong)
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun(t *testing.T) {
	plan := Plan{
		Old: fake(t, 30, 0), New: fake(t, 20, 0), Rounds: 3, Budget: time.Millisecond,
		Settings: []Setting{{"shm", 2}, {"tcp", 4}}, Ops: []string{"all_reduce", "barrier"}, Sizes: []int64{8, 1024},
	}
	rounds := 0
	rows, err := Run(context.Background(), plan, func(int) { rounds++ })
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 6 || rounds != 3 { // The barrier is measured once in each setting.
		t.Fatalf("got %d rows in %d rounds, want 6 in 3: %v", len(rows), rounds, rows)
	}
	for _, s := range rows {
		if !slices.Equal(s.Old, []float64{30, 30, 30}) || !slices.Equal(s.New, []float64{20, 20, 20}) {
			t.Errorf("got %+v, want three times 30 and three times 20", s)
		}
	}
	if v := Judge(rows, 0.95); math.Abs(v.Mean-1.5) > 1e-9 || v.Slower != nil {
		t.Errorf("got %+v, want a mean of 1.5 and no slower row", v)
	}
	var table strings.Builder
	if err := Print(&table, rows, 0.95); err != nil || !strings.Contains(table.String(), "1.500-1.500") {
		t.Errorf("got error %v and a table without the interval 1.500-1.500:\n%s", err, &table)
	}
}

func TestRunRefusesWrongResults(t *testing.T) {
	plan := Plan{
		Old: fake(t, 30, 0), New: fake(t, 20, 1), Rounds: 1, Budget: time.Millisecond,
		Settings: []Setting{{"shm", 2}}, Ops: []string{"all_reduce"}, Sizes: []int64{8},
	}
	if _, err := Run(context.Background(), plan, func(int) {}); err == nil || !strings.Contains(err.Error(), "wrong elements") {
		t.Errorf("got error %v, want one about wrong elements", err)
	}
}

// TestRatioOf compares the interval with Student's t: for the logarithms 0.1, 0.2 and 0.3 the mean
// is 0.2 and half the width is 4.3027 * 0.1 / sqrt(3).
func TestRatioOf(t *testing.T) {
	s := Samples{Old: []float64{math.Exp(0.1), math.Exp(0.2), math.Exp(0.3)}, New: []float64{1, 1, 1}}
	r, half := RatioOf(s), 4.302653*0.1/math.Sqrt(3)
	for _, c := range []struct{ got, want float64 }{{r.Mean, math.Exp(0.2)}, {r.Low, math.Exp(0.2 - half)}, {r.High, math.Exp(0.2 + half)}} {
		if math.Abs(c.got-c.want) > 1e-5 {
			t.Errorf("%+v: got %v, want %v", r, c.got, c.want)
		}
	}
}

func TestJudgeFindsSlowerRows(t *testing.T) {
	slow := Samples{Row: Row{Op: "scan"}, Old: []float64{10, 10, 11}, New: []float64{20, 21, 20}}
	if v := Judge([]Samples{slow}, 0.95); len(v.Slower) != 1 || v.Slower[0] != slow.Row {
		t.Errorf("got %+v, want one slower row", v)
	}
}

func TestParseSetting(t *testing.T) {
	if s, err := ParseSetting("shm:4"); err != nil || s != (Setting{"shm", 4}) {
		t.Errorf("got %v, %v, want shm with 4 ranks", s, err)
	}
	for _, bad := range []string{"", "shm", ":4", "shm:0", "shm:x"} {
		if _, err := ParseSetting(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
