//race:none it starts no goroutine

package report

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/command/internal/bench"
)

func sample() []bench.Result {
	var list []bench.Result
	for _, op := range []string{"all_reduce", "broadcast"} {
		for bytes := int64(8); bytes <= 1<<20; bytes *= 8 {
			list = append(list, bench.Result{
				Op: op, Ranks: 4, Bytes: bytes, Transport: "quic", Encrypted: true,
				Iters: 10, P50: 100 + float64(bytes)/100, P99: 200 + float64(bytes)/100, Alg: 0.5, Bus: 0.75,
			})
		}
	}
	return append(list, bench.Result{Op: "barrier", Ranks: 4, Transport: "quic", Encrypted: true, Iters: 10, P50: 50, P99: 60})
}

func TestTable(t *testing.T) {
	var b strings.Builder
	table := NewTable(&b)
	for _, r := range sample() {
		if err := table.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	got := b.String()
	for _, want := range []string{
		"4 ranks, quic (encrypted), float32; bandwidths as in nccl-tests\n\nall_reduce ",
		"\n           8 B   100.1 µs   200.1 µs        0.500        0.750      10       0\n",
		"\n       256 KiB    2.72 ms    2.82 ms        0.500        0.750      10       0\n",
		"\n             -    50.0 µs    60.0 µs            -            -      10       0\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got table\n%s\nwithout %q", got, want)
		}
	}
	for _, op := range []string{"\nall_reduce ", "\nbroadcast ", "\nbarrier "} {
		if n := strings.Count(got, op); n != 1 {
			t.Errorf("got %d headings %q, want 1", n, op)
		}
	}
}

func TestSizeAndMicros(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 8: "8 B", 1000: "1,000 B", 1024: "1 KiB", 1536: "1,536 B", 64 << 20: "64 MiB",
		25_000_000: "25,000,000 B", 3 << 40: "3 TiB", 1 << 60: "1,048,576 TiB",
	} {
		if got := Size(bytes); got != want {
			t.Errorf("Size(%d) = %q, want %q", bytes, got, want)
		}
	}
	for us, want := range map[float64]string{0.05: "0.1 µs", 12.34: "12.3 µs", 1500: "1.50 ms", 2.5e6: "2.50 s"} {
		if got := Micros(us); got != want {
			t.Errorf("Micros(%v) = %q, want %q", us, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := JSON(&b, sample()[1]); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("got %q, want one line", b.String())
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]any{
		"op": "all_reduce", "ranks": 4.0, "bytes": 64.0, "transport": "quic", "encrypted": true, "iters": 10.0,
		"p50_us": 100.64, "p99_us": 200.64, "algbw_GBps": 0.5, "busbw_GBps": 0.75, "wrong": 0.0,
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

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestErrorsOfTheWriter(t *testing.T) {
	if err := NewTable(fullDisk{}).Add(sample()[0]); err == nil {
		t.Error("Table: got no error, want one")
	}
	if err := JSON(fullDisk{}, sample()[0]); err == nil {
		t.Error("JSON: got no error, want one")
	}
}

func TestSummary(t *testing.T) {
	list := sample()
	list[3].Wrong = 1
	if got, want := Summary(list, 90500*time.Millisecond), "3 operations, 13 measurements, 1 wrong element, in 90.5 s"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
