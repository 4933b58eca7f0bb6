package report

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/dustin/go-humanize"
)

// A chart draws curves over message size, both axes logarithmic, as SVG. The vertical axis is a
// time, or a number of bytes.
type chart struct {
	title    string
	vertical string // name of the vertical axis; empty is "median time"
	inBytes  bool   // the vertical axis is a number of bytes
	curves   []curve
}

// A curve is one line of a chart, with a marker at each point. The dashed line predicted
// has the same color and no markers; it may be empty.
type curve struct {
	name      string
	measured  []point
	predicted []point
	best      []point // of measured: marked, since no other curve is lower there
}

// A point is a time in microseconds, or a number of bytes, for a size in bytes. Both are positive.
type point struct{ bytes, micros float64 }

// The size of a chart and of the area between its axes, in pixels. The legend stands to the right
// of that area.
const (
	chartWidth           = 980
	plotLeft, plotRight  = 80, 720
	plotTop, plotBottom  = 45, 545
	chartHeight          = 600
	legendLeft           = plotRight + 20
	legendStep           = 20
	chartText, chartGrid = "#333", "#ddd"
)

// The colors of Okabe and Ito, "Color Universal Design" (2008), can be told apart with every
// kind of color vision.
var curveColors = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000"}

// write writes the chart to w. A chart without points is an error.
func (c *chart) write(w io.Writer) error { return writeCharts(w, c) }

// writeCharts writes charts to w, one below the other. A chart without points is an error.
func writeCharts(w io.Writer, charts ...*chart) error {
	height := 0
	for _, c := range charts {
		c.curves = slices.DeleteFunc(c.curves, func(l curve) bool { return len(l.measured) == 0 })
		if len(c.curves) == 0 {
			return errors.New("nothing to draw: no operation with a size was measured")
		}
		height += c.height()
	}
	var svg bytes.Buffer
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">`+"\n",
		chartWidth, height, chartText)
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	top := 0
	for _, c := range charts {
		if top > 0 {
			fmt.Fprintf(&svg, `<g transform="translate(0 %d)">`+"\n", top)
		}
		c.draw(&svg)
		if top > 0 {
			fmt.Fprintf(&svg, "</g>\n")
		}
		top += c.height()
	}
	fmt.Fprintf(&svg, "</svg>\n")
	_, err := w.Write(svg.Bytes())
	return err
}

func (c *chart) height() int { return max(chartHeight, plotTop+legendStep*(len(c.curves)+1)) }

// draw draws the chart, which has points.
func (c *chart) draw(svg *bytes.Buffer) {
	d := c.newDrawing(svg)
	d.label((plotLeft+plotRight)/2, plotTop-20, "middle", c.title)
	d.axes(c)
	for i, l := range c.curves {
		d.curve(i, l)
	}
}

// A drawing is the SVG of a chart, and the scale of its axes.
type drawing struct {
	svg              *bytes.Buffer
	minBytes, xScale float64 // left end of the axis, and pixels for a factor of e
	minMicros        float64 // bottom end of the axis
	maxMicros        float64
	maxBytes, yScale float64
}

// newDrawing returns a drawing with axes that leave some room around all points.
func (c *chart) newDrawing(svg *bytes.Buffer) *drawing {
	d := &drawing{svg: svg, minBytes: math.Inf(1), minMicros: math.Inf(1)}
	for _, l := range c.curves {
		for _, p := range slices.Concat(l.measured, l.predicted) {
			d.minBytes, d.maxBytes = min(d.minBytes, p.bytes), max(d.maxBytes, p.bytes)
			d.minMicros, d.maxMicros = min(d.minMicros, p.micros), max(d.maxMicros, p.micros)
		}
	}
	const room = 1.5
	d.minBytes, d.maxBytes = d.minBytes/room, d.maxBytes*room
	d.minMicros, d.maxMicros = d.minMicros/room, d.maxMicros*room
	d.xScale = (plotRight - plotLeft) / math.Log(d.maxBytes/d.minBytes)
	d.yScale = (plotBottom - plotTop) / math.Log(d.maxMicros/d.minMicros)
	return d
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(d.svg, format, args...) }

// label writes text at a position; anchor is that of SVG: start, middle or end.
func (d *drawing) label(x, y float64, anchor, text string) {
	d.printf(`<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(d.svg, []byte(text)) // cannot fail: a bytes.Buffer takes everything
	d.printf("</text>\n")
}

func (d *drawing) x(bytes float64) float64 { return plotLeft + d.xScale*math.Log(bytes/d.minBytes) }
func (d *drawing) y(micros float64) float64 {
	return plotBottom - d.yScale*math.Log(micros/d.minMicros)
}

// axes draws the grid and the labels of both axes.
func (d *drawing) axes(c *chart) {
	for _, t := range sizeTicks(d.minBytes, d.maxBytes) {
		x := d.x(t.value)
		if t.label != "" {
			d.printf(`<path d="M%.1f %dV%d" stroke="%s"/>`+"\n", x, plotTop, plotBottom, chartGrid)
			d.label(x, plotBottom+18, "middle", t.label)
		}
		d.printf(`<path d="M%.1f %dv5" stroke="%s"/>`+"\n", x, plotBottom, chartText)
	}
	name := decadeLabel
	if c.inBytes {
		name = bytesLabel
	}
	for _, t := range decimalTicks(d.minMicros, d.maxMicros, name) {
		y := d.y(t.value)
		if t.label != "" {
			d.printf(`<path d="M%d %.1fH%d" stroke="%s"/>`+"\n", plotLeft, y, plotRight, chartGrid)
			d.label(plotLeft-10, y+4, "end", t.label)
		}
		d.printf(`<path d="M%d %.1fh-5" stroke="%s"/>`+"\n", plotLeft, y, chartText)
	}
	d.printf(`<path d="M%d %dV%dH%d" fill="none" stroke="%s"/>`+"\n", plotLeft, plotTop, plotBottom, plotRight, chartText)
	d.label((plotLeft+plotRight)/2, plotBottom+40, "middle", "bytes")
	d.label(plotLeft, plotTop-8, "end", cmp.Or(c.vertical, "median time"))
}

// curve draws the i-th curve and its line of the legend.
func (d *drawing) curve(i int, l curve) {
	color := curveColors[i%len(curveColors)]
	d.line(l.predicted, color, ` stroke-dasharray="4 3"`)
	d.line(l.measured, color, "")
	for _, p := range l.measured {
		d.marker(i, d.x(p.bytes), d.y(p.micros), color)
	}
	for _, p := range l.best {
		d.printf(`<circle cx="%.1f" cy="%.1f" r="7" fill="none" stroke="%s" stroke-width="2"/>`+"\n", d.x(p.bytes), d.y(p.micros), color)
	}
	y := float64(plotTop + legendStep*i)
	d.printf(`<path d="M%d %.1fh30" stroke="%s" stroke-width="2"/>`+"\n", legendLeft, y, color)
	d.marker(i, legendLeft+15, y, color)
	d.label(legendLeft+38, y+4, "start", l.name)
}

func (d *drawing) line(points []point, color, attributes string) {
	if len(points) == 0 {
		return
	}
	d.printf(`<polyline fill="none" stroke="%s" stroke-width="2"%s points="`, color, attributes)
	for _, p := range points {
		d.printf("%.1f,%.1f ", d.x(p.bytes), d.y(p.micros))
	}
	d.printf(`"/>` + "\n")
}

// marker draws the marker of the i-th curve. Curves of the same color have different markers.
func (d *drawing) marker(i int, x, y float64, color string) {
	switch (i / len(curveColors)) % 3 {
	case 0:
		d.printf(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x, y, color)
	case 1:
		d.printf(`<rect x="%.1f" y="%.1f" width="7" height="7" fill="%s"/>`+"\n", x-3.5, y-3.5, color)
	default:
		d.printf(`<path d="M%.1f %.1fl4 7h-8z" fill="%s"/>`+"\n", x, y-4, color)
	}
}

// A tick is a mark of an axis. Only labelled ticks have a grid line.
type tick struct {
	value float64
	label string
}

// sizeTicks returns the powers of two from lo to hi, with at most ten labels.
func sizeTicks(lo, hi float64) []tick {
	first, last := int(math.Ceil(math.Log2(lo))), int(math.Floor(math.Log2(hi)))
	step := max(1, (last-first)/9+1)
	var ticks []tick
	for e := first; e <= last; e++ {
		t := tick{value: math.Exp2(float64(e))}
		if (e-first)%step == 0 && e >= 0 {
			t.label = Size(1 << e)
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// decimalTicks returns the multiples of the powers of ten from lo to hi. The powers of ten are
// labelled.
func decimalTicks(lo, hi float64, label func(float64) string) []tick {
	var ticks []tick
	for decade := math.Pow(10, math.Floor(math.Log10(lo))); decade <= hi; decade *= 10 {
		for i := 1.0; i < 10; i++ {
			if v := i * decade; v >= lo && v <= hi {
				t := tick{value: v}
				if i == 1 {
					t.label = label(v)
				}
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// decadeLabel formats a power of ten of microseconds: "100 µs", "1 ms".
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

// bytesLabel formats a power of ten of bytes: "100 kB".
func bytesLabel(bytes float64) string { return humanize.SIWithDigits(math.Round(bytes), 0, "B") }
