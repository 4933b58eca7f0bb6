package report

import (
	"errors"
	"fmt"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/nexar-go/nexar/cmd/nexar/internal/bench"
)

// Draw writes a drawing in SVG: time over size, one curve for each operation,
// both axes logarithmic. Operations without a size are left out.
func Draw(w io.Writer, results []bench.Result) error {
	c := newChart()
	if r := results; len(r) > 0 {
		c.Title.Text = conditions(r[0].Ranks, r[0].Transport, r[0].Encrypted)
	}
	for _, op := range opsOf(results) {
		if err := c.curve(op, points(results, op), nil); err != nil {
			return err
		}
	}
	return c.write(w)
}

// A chart is a drawing of curves of time over size.
type chart struct {
	*plot.Plot
	drawn int
}

func newChart() *chart {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "bytes", "median time"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(sizeTicks)
	p.Y.Tick.Marker = plot.TickerFunc(timeTicks)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	return &chart{Plot: p}
}

// curve adds one of what was measured, and a dashed one of what was predicted,
// if that is known.
func (c *chart) curve(name string, measured, predicted plotter.XYs) error {
	if len(measured) == 0 {
		return nil
	}
	line, marks, err := plotter.NewLinePoints(measured)
	if err != nil {
		return err
	}
	line.Color, marks.Color = plotutil.Color(c.drawn), plotutil.Color(c.drawn)
	marks.Shape = plotutil.Shape(c.drawn)
	if predicted == nil {
		line.Dashes = plotutil.Dashes(c.drawn / len(plotutil.DefaultColors))
	}
	c.Add(line, marks)
	c.Legend.Add(name, line, marks)
	c.drawn++
	if len(predicted) == 0 {
		return nil
	}
	dashed, err := plotter.NewLine(predicted)
	if err != nil {
		return err
	}
	dashed.Color, dashed.Dashes = line.Color, []vg.Length{vg.Points(4), vg.Points(3)}
	c.Add(dashed)
	return nil
}

func (c *chart) write(w io.Writer) error {
	if c.drawn == 0 {
		return errors.New("there is nothing to draw: no operation with a size was measured")
	}
	widen(c.Plot)
	out, err := c.WriterTo(24*vg.Centimeter, 16*vg.Centimeter, "svg")
	if err != nil {
		return err
	}
	_, err = out.WriteTo(w)
	return err
}

// opsOf are the operations in the order in which they come.
func opsOf(results []bench.Result) []string {
	var ops []string
	for i, r := range results {
		if i == 0 || r.Op != results[i-1].Op {
			ops = append(ops, r.Op)
		}
	}
	return ops
}

// points are the measurements of an operation that a logarithmic scale has a
// place for.
func points(results []bench.Result, op string) plotter.XYs {
	var curve plotter.XYs
	for _, r := range results {
		if r.Op == op && r.Bytes > 0 && r.P50 > 0 {
			curve = append(curve, plotter.XY{X: float64(r.Bytes), Y: r.P50})
		}
	}
	return curve
}

// widen leaves room around the curves: logarithmic axes need two ends that
// differ.
func widen(p *plot.Plot) {
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Min /= 1.5
		a.Max *= 1.5
	}
}

// sizeTicks labels every fourth or so power of two.
func sizeTicks(lo, hi float64) []plot.Tick {
	first, last := int(math.Ceil(math.Log2(lo))), int(math.Floor(math.Log2(hi)))
	step := max(1, (last-first)/9+1)
	var ticks []plot.Tick
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if (e-first)%step == 0 && e >= 0 {
			t.Label = Size(1 << e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// timeTicks labels the powers of ten, and puts marks between them.
func timeTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Pow(10, math.Floor(math.Log10(lo))); decade <= hi; decade *= 10 {
		for i := 1.0; i < 10; i++ {
			if v := i * decade; v >= lo && v <= hi {
				t := plot.Tick{Value: v}
				if i == 1 {
					t.Label = decadeLabel(v)
				}
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// decadeLabel writes a power of ten of microseconds: "100 µs", "1 ms".
func decadeLabel(us float64) string {
	switch {
	case us < 999:
		return fmt.Sprintf("%.4g µs", us)
	case us < 999e3:
		return fmt.Sprintf("%.4g ms", us/1e3)
	default:
		return fmt.Sprintf("%.4g s", us/1e6)
	}
}
