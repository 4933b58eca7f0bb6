package report

import (
	"io"

	"github.com/nexar-go/nexar/internal/command/internal/bench"
)

// Draw writes an SVG chart of the median time over the size, one curve for each operation.
// Operations without a size, such as a barrier, are left out.
func Draw(w io.Writer, results []bench.Result) error {
	var c chart
	if r := results; len(r) > 0 {
		c.title = conditions(r[0].Ranks, r[0].Transport, r[0].Encrypted, r[0].Device)
	}
	for _, op := range opsOf(results) {
		c.curves = append(c.curves, curve{name: op, measured: points(results, op)})
	}
	return c.write(w)
}

// opsOf returns the operations in the order of their first result.
func opsOf(results []bench.Result) []string {
	var ops []string
	for i, r := range results {
		if i == 0 || r.Op != results[i-1].Op {
			ops = append(ops, r.Op)
		}
	}
	return ops
}

// points returns the measurements of op that a logarithmic scale can show.
func points(results []bench.Result, op string) []point {
	var list []point
	for _, r := range results {
		if r.Op == op && r.Bytes > 0 && r.P50 > 0 {
			list = append(list, point{float64(r.Bytes), r.P50})
		}
	}
	return list
}
