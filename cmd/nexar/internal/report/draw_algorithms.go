package report

import (
	"io"
	"slices"

	"gonum.org/v1/plot/plotter"

	"github.com/nexar-go/nexar/cmd/nexar/internal/bench"
)

// DrawAlgorithms writes a drawing in SVG: time over size, one curve for each
// algorithm, and a dashed one of what was predicted of it. Operations without a
// size are left out.
func DrawAlgorithms(w io.Writer, list []bench.Comparison) error {
	chart := newChart()
	several := false // operations
	for _, c := range list {
		several = several || c.Op != list[0].Op
	}
	if len(list) > 0 {
		chart.Title.Text = conditions(list[0].Ranks, list[0].Transport, list[0].Encrypted) + "; dashed: predicted"
		if !several {
			chart.Title.Text = list[0].Op + " of " + chart.Title.Text
		}
	}
	var names []string
	measured, predicted := make(map[string]plotter.XYs), make(map[string]plotter.XYs)
	for _, c := range list {
		for _, w := range c.Ways {
			name := curveName(w, several)
			if w.Bytes == 0 || w.P50 <= 0 {
				continue
			}
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
			measured[name] = append(measured[name], plotter.XY{X: float64(w.Bytes), Y: w.P50})
			if w.Predicted > 0 {
				predicted[name] = append(predicted[name], plotter.XY{X: float64(w.Bytes), Y: w.Predicted})
			}
		}
	}
	for _, name := range names {
		if err := chart.curve(name, measured[name], predicted[name]); err != nil {
			return err
		}
	}
	return chart.write(w)
}

// curveName names a way whatever the number of channels is, which changes with
// the size.
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
