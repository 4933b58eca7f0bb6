// Package report writes the results of a benchmark: as a table, as lines of JSON, and as an
// SVG chart.
//
// For results of bench.Run there are Table, JSON and Draw; for those of bench.Compare there
// are Algorithms, JSON and DrawAlgorithms. Errors are those of the writer. A Table and an
// Algorithms are for one goroutine at a time.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/nexar-go/nexar/internal/command/internal/bench"
)

// A Table writes results as rows, with a heading for each operation.
type Table struct {
	w  io.Writer
	op string
}

// NewTable returns a table that writes to w.
func NewTable(w io.Writer) *Table { return &Table{w: w} }

// Add writes the row of r, preceded by a heading if r begins an operation.
func (t *Table) Add(r bench.Result) error {
	if r.Op != t.op {
		if t.op == "" {
			if _, err := fmt.Fprintf(t.w, "%s; %s\n", conditions(r.Ranks, r.Transport, r.Encrypted, r.Device), bandwidths(r)); err != nil {
				return err
			}
		}
		t.op = r.Op
		if _, err := fmt.Fprintf(t.w, "\n%-14s %10s %10s %12s %12s %7s %7s\n",
			r.Op, "p50", "p99", "algbw GB/s", "busbw GB/s", "iters", "wrong"); err != nil {
			return err
		}
	}
	size, alg, bus := Size(r.Bytes), fmt.Sprintf("%.3f", r.Alg), fmt.Sprintf("%.3f", r.Bus)
	if r.Bytes == 0 {
		size, alg, bus = "-", "-", "-"
	}
	if r.Ranks == 1 {
		alg, bus = "-", "-" // Nothing is sent.
	}
	_, err := fmt.Fprintf(t.w, "%14s %10s %10s %12s %12s %7d %7d\n", size, Micros(r.P50), Micros(r.P99), alg, bus, r.Iters, r.Wrong)
	return err
}

// conditions formats the conditions of all results: "4 ranks, shm (not encrypted), float32", and the device with the
// vectors, if they are not in memory of the host.
func conditions(ranks int, transport string, encrypted bool, device string) string {
	secrecy := "not encrypted"
	if encrypted {
		secrecy = "encrypted"
	}
	text := fmt.Sprintf("%s, %s (%s), float32", Count(ranks, "rank"), transport, secrecy)
	if device != "" {
		text += " on " + device
	}
	return text
}

// bandwidths returns a line that explains the bandwidths.
func bandwidths(r bench.Result) string {
	if r.Ranks == 1 {
		return "one rank sends nothing, so there are no bandwidths"
	}
	return "bandwidths as in nccl-tests"
}

// Size formats a number of bytes in its largest unit without a fraction, or in
// bytes with separators: "64 KiB", "25,000,000 B".
func Size(bytes int64) string {
	unit := 0
	for n := bytes; n > 0 && n%1024 == 0 && unit < len(units)-1; unit++ {
		n /= 1024
	}
	return humanize.Comma(bytes>>(10*unit)) + " " + units[unit]
}

var units = [...]string{"B", "KiB", "MiB", "GiB", "TiB"}

// Micros writes a number of microseconds in the unit that suits it.
func Micros(us float64) string {
	switch {
	case us < 1e3:
		return fmt.Sprintf("%.1f µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.2f ms", us/1e3)
	default:
		return fmt.Sprintf("%.2f s", us/1e6)
	}
}

// JSON writes a bench.Result, a bench.Way or a Prediction as one line.
func JSON[T bench.Result | bench.Way | Prediction](w io.Writer, r T) error {
	return json.NewEncoder(w).Encode(r)
}

// Summary returns a line with the number of measurements and wrong elements.
func Summary(results []bench.Result, took time.Duration) string {
	ops, wrong := map[string]bool{}, int64(0)
	for _, r := range results {
		ops[r.Op] = true
		wrong += r.Wrong
	}
	return fmt.Sprintf("%s, %s, %s, in %.1f s", Count(len(ops), "operation"), Count(len(results), "measurement"),
		Count(int(wrong), "wrong element"), took.Seconds())
}

// Count formats a number of things: "1 rank", "2 ranks".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return humanize.Comma(int64(n)) + " " + what
}
