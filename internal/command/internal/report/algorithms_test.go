package report

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/bench"
)

// comparisons are of two operations, one of them without a size.
func comparisons() []bench.Comparison {
	var list []bench.Comparison
	for _, c := range []struct {
		op    string
		bytes int64
	}{{"all_reduce", 8}, {"all_reduce", 64 << 10}, {"barrier", 0}} {
		way := func(name string, channels int, shared bool, predicted, p50 float64) bench.Way {
			return bench.Way{
				Op: c.op, Ranks: 4, Bytes: c.bytes, Transport: "shm", Algorithm: name, Channels: channels, Shared: shared,
				Predicted: predicted, P50: p50, Q1: p50 - 1, Q3: p50 + 2,
			}
		}
		staged, ring := way("staged", 1, true, 10, 12), way("ring", 4, false, 40, 10)
		staged.Chosen, staged.ChosenBy, ring.Fastest = true, "model", true
		if c.bytes == 8 {
			staged.Fastest, ring.Fastest, ring.P50 = true, false, 60
		}
		list = append(list, bench.Comparison{
			Op: c.op, Ranks: 4, Bytes: c.bytes, Transport: "shm", Rounds: 5, Runs: 3, Ways: []bench.Way{staged, ring},
			Left: []nexar.Algorithm{{Name: "chain", Channels: 1, Predicted: 1500 * time.Microsecond}},
		})
	}
	return list
}

func TestAlgorithms(t *testing.T) {
	var b strings.Builder
	tables := NewAlgorithms(&b)
	list := comparisons()
	list[2].Ways[1].Wrong, list[2].Ways[1].Predicted = 2, 0
	list[0].Ways[0].ChosenBy, list[2].Ways[0].ChosenBy = "setting", "hint"
	for _, c := range list {
		if err := tables.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	const table = `
all_reduce of 64 KiB: 5 rounds of 3 runs
  algorithm                over              cost        p50         q1         q3  ratio
  staged                   memory            1.00    12.0 µs    11.0 µs    14.0 µs   1.20  chosen
  ring                     4 channels        4.00    10.0 µs     9.0 µs    12.0 µs   1.00  fastest
  not measured, since the cost is more than 8:
  chain                    1 channel       150.00

barrier: 5 rounds of 3 runs
`
	got := b.String()
	for _, want := range []string{
		"4 ranks, shm (not encrypted), float32; medians and quartiles", table, "   1.00  chosen by a setting, fastest\n", "  1.20  chosen by a hint\n",
		"  ring                     4 channels           -    10.0 µs     9.0 µs    12.0 µs   1.00  fastest, 2 wrong elements\n",
	} {
		if strings.Count(got, want) != 1 {
			t.Errorf("got tables\n%s\nwant this in them once:\n%s", got, want)
		}
	}
}

// TestDeviceOfAlgorithms: the table names the device with the vectors, and says that the prediction is not for it.
func TestDeviceOfAlgorithms(t *testing.T) {
	list := comparisons()
	for i := range list {
		list[i].Device = "cuda:0"
	}
	var table strings.Builder
	if err := NewAlgorithms(&table).Add(list[0]); err != nil {
		t.Fatal(err)
	}
	const want = "4 ranks, shm (not encrypted), float32 on cuda:0; medians and quartiles over rounds in which all algorithms take turns\n" +
		"cost and choice are those for vectors in memory of the host\n\nall_reduce of 8 B"
	if got := table.String(); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant it to begin with\n%s", got, want)
	}
}

func TestVerdicts(t *testing.T) {
	const want = `all_reduce: the choice is within 15 % of the fastest at 1 of 2 sizes; at worst it takes 1.20 times as long at 64 KiB, by staged (memory) instead of ring (4 channels)
barrier: the choice is within 15 % of the fastest at 0 of 1 size; at worst it takes 1.20 times as long, by staged (memory) instead of ring (4 channels)
`
	list := comparisons()
	if got := Verdicts(list); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := Verdicts(list[:1]), "all_reduce: the choice is within 15 % of the fastest at 1 of 1 size\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	list[0].Ways[1].Wrong = 1
	if got, want := AlgorithmsSummary(list, 2*time.Second), "2 operations, 3 comparisons, 6 measurements, 1 wrong element, in 2.0 s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestJSONOfWays(t *testing.T) {
	var b strings.Builder
	if err := JSON(&b, comparisons()[1].Ways[0]); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || strings.Count(b.String(), "\n") != 1 {
		t.Fatalf("got %q, error %v, want one object on a line", b.String(), err)
	}
	for field, want := range map[string]any{
		"op": "all_reduce", "ranks": 4.0, "bytes": 65536.0, "transport": "shm", "encrypted": false, "algorithm": "staged",
		"channels": 1.0, "shared": true, "predicted_us": 10.0, "p50_us": 12.0, "q1_us": 11.0, "q3_us": 14.0,
		"chosen": true, "chosen_by": "model", "fastest": false, "wrong": 0.0,
	} {
		if got[field] != want {
			t.Errorf("%s is %v, want %v", field, got[field], want)
		}
		delete(got, field)
	}
	if len(got) != 0 {
		t.Errorf("got more fields: %v", got)
	}
}

func TestErrorsOfTheWriterOfAlgorithms(t *testing.T) {
	if err := NewAlgorithms(fullDisk{}).Add(comparisons()[0]); err == nil {
		t.Error("Algorithms: got no error, want one")
	}
}
