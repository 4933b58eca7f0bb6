package report

import (
	"io"
	"slices"

	"github.com/nexar-go/nexar/internal/command/internal/bench"
)

// DrawAlgorithms writes an SVG chart of the time over the size: for each algorithm one curve of
// measured medians and a dashed one of predicted times. Operations without a size are left out.
func DrawAlgorithms(w io.Writer, list []bench.Comparison) error {
	var c chart
	severalOps := false
	for _, cmp := range list {
		severalOps = severalOps || cmp.Op != list[0].Op
	}
	if len(list) > 0 {
		c.title = conditions(list[0].Ranks, list[0].Transport, list[0].Encrypted, list[0].Device) + "; dashed: predicted"
		if list[0].Device != "" {
			c.title += " for memory of the host"
		}
		if !severalOps {
			c.title = list[0].Op + " of " + c.title
		}
	}
	for _, cmp := range list {
		for _, way := range cmp.Ways {
			if way.Bytes == 0 || way.P50 <= 0 {
				continue
			}
			l := c.named(curveName(way, severalOps))
			l.measured = append(l.measured, point{float64(way.Bytes), way.P50})
			if way.Predicted > 0 {
				l.predicted = append(l.predicted, point{float64(way.Bytes), way.Predicted})
			}
		}
	}
	return c.write(w)
}

// named returns the curve of that name, which it adds if the chart has none.
func (c *chart) named(name string) *curve {
	i := slices.IndexFunc(c.curves, func(l curve) bool { return l.name == name })
	if i < 0 {
		i = len(c.curves)
		c.curves = append(c.curves, curve{name: name})
	}
	return &c.curves[i]
}

// curveName names the curve of an algorithm. The number of channels is no part of it, since it
// changes with the size.
func curveName(w bench.Way, withOp bool) string {
	name := w.Algorithm
	if w.Shared {
		name += " in memory"
	}
	if withOp {
		name = w.Op + " by " + name
	}
	return name
}
