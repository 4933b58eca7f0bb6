package main

import (
	"image/color"
	"io"
	"math"
	"slices"

	"github.com/dustin/go-humanize"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/nexar-go/nexar/bench/results"
)

// A chart draws curves over message size, both axes logarithmic, as SVG. The vertical axis is a
// time, or a number of bytes.
type chart struct {
	title    string
	vertical string // name of the vertical axis
	inBytes  bool   // the vertical axis is a number of bytes
	curves   []curve
}

// A curve is one line of a chart, with a marker at each point. The dashed line predicted
// has the same color and no markers; it may be empty.
type curve struct {
	name      string
	measured  plotter.XYs // a time in microseconds, or a number of bytes, for each size in bytes; all positive
	predicted plotter.XYs
	best      plotter.XYs // points of measured with a ring: no other curve is lower there
}

const (
	chartWidth  = 18 * vg.Centimeter
	chartHeight = 13 * vg.Centimeter
	legendWidth = 7 * vg.Centimeter
	chartText   = vg.Length(10)
)

// The colors of Okabe and Ito, "Color Universal Design" (2008), can be told apart with every
// kind of color vision.
var curveColors = [...]color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0x56, 0xb4, 0xe9, 0xff}, {0xe6, 0x9f, 0x00, 0xff}, {0x00, 0x00, 0x00, 0xff},
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

// write writes charts to w, one below the other.
func write(w io.Writer, charts []*chart) error {
	canvas := vgsvg.New(chartWidth+legendWidth, chartHeight*vg.Length(len(charts)))
	area := draw.New(canvas)
	area.SetColor(color.White) // A page with a dark theme would hide the axes.
	area.Fill(area.Rectangle.Path())
	for i, c := range charts {
		below := chartHeight * vg.Length(len(charts)-1-i)
		if err := c.draw(draw.Crop(area, 0, 0, below, -chartHeight*vg.Length(i))); err != nil {
			return err
		}
	}
	_, err := canvas.WriteTo(w)
	return err
}

// draw draws the chart and, to the right of it, the legend.
func (c *chart) draw(area draw.Canvas) error {
	p, legend := plot.New(), plot.NewLegend()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, "bytes", c.vertical
	legend.Top, legend.Left, legend.Padding = true, true, 3
	for _, s := range []*vg.Length{&p.X.Label.TextStyle.Font.Size, &p.Y.Label.TextStyle.Font.Size, &legend.TextStyle.Font.Size} {
		*s = chartText
	}
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(results.SizeTicks), plot.TickerFunc(results.TimeTicks)
	if c.inBytes {
		p.Y.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick { return results.DecimalTicks(lo, hi, bytesLabel) })
	}
	p.Add(plotter.NewGrid())
	for i, l := range c.curves {
		if err := l.add(i, p, &legend); err != nil {
			return err
		}
	}
	// The ends of a logarithmic axis must differ, also with a single point.
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Min, a.Max = a.Min/1.5, a.Max*1.5
	}
	p.Draw(draw.Crop(area, 0, -legendWidth, 0, 0))
	legend.Draw(draw.Crop(area, chartWidth, 0, 0, -chartHeight/10))
	return nil
}

// add adds the i-th curve to a plot and its legend. Curves of the same color have different markers.
func (l curve) add(i int, p *plot.Plot, legend *plot.Legend) error {
	line, marks, err := plotter.NewLinePoints(l.measured)
	if err != nil {
		return err
	}
	line.Color, line.Width = curveColors[i%len(curveColors)], 1.5
	marks.Color, marks.Shape, marks.Radius = line.Color, plotutil.Shape(i/len(curveColors)), 2.5
	p.Add(line, marks)
	legend.Add(l.name, line, marks)
	if len(l.predicted) > 0 {
		dashed, err := plotter.NewLine(l.predicted)
		if err != nil {
			return err
		}
		dashed.Color, dashed.Width, dashed.Dashes = line.Color, line.Width, plotutil.Dashes(1)
		p.Add(dashed)
	}
	if len(l.best) > 0 {
		rings, err := plotter.NewScatter(l.best)
		if err != nil {
			return err
		}
		rings.Color, rings.Shape, rings.Radius = line.Color, draw.RingGlyph{}, 5
		p.Add(rings)
	}
	return nil
}

// bytesLabel formats a power of ten of bytes: "100 kB".
func bytesLabel(bytes float64) string { return humanize.SIWithDigits(math.Round(bytes), 0, "B") }
