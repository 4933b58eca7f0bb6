// Package curve plots values by epoch as an SVG file:
//
//	err := curve.Draw(file, "loss", curve.Line{Name: "training", Values: losses})
//
// The file needs no other resources. Draw returns errors of the writer only.
package curve

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
)

// A Line has the values of epochs 1, 2 and so on. Negative and non-finite values are omitted.
type Line struct {
	Name   string
	Values []float64
}

// The size of the drawing, and the area between the axes, in pixels.
const (
	width, height = 640, 400
	left, right   = 60, 620
	top, bottom   = 40, 350
)

// Draw writes a plot of the lines. Both axes are linear; the vertical axis begins at 0.
func Draw(w io.Writer, title string, lines ...Line) error {
	d := drawing{epochs: 1}
	high := 0.0
	for _, l := range lines {
		d.epochs = max(d.epochs, len(l.Values))
		for _, v := range l.Values {
			if drawn(v) {
				high = max(high, v)
			}
		}
	}
	step := stepOf(high)
	d.high = max(step, step*math.Ceil(high/step))

	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#333">`+"\n", width, height)
	d.printf(`<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	d.text((left+right)/2, top-20, "middle", title)
	d.axes(step)
	for i, l := range lines {
		d.line(i, l)
	}
	d.printf("</svg>\n")
	_, err := w.Write(d.svg.Bytes())
	return err
}

// drawn reports whether a value is drawn.
func drawn(v float64) bool { return v >= 0 && !math.IsInf(v, 1) }

// stepOf returns the distance of the marks of an axis that ends at high: 1, 2 or 5 times a power
// of ten, for two to five marks.
func stepOf(high float64) float64 {
	if high <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(high)))
	switch marks := high / power; {
	case marks < 2:
		return power / 2
	case marks < 5:
		return power
	default:
		return 2 * power
	}
}

// A drawing is an SVG file in progress.
type drawing struct {
	svg    bytes.Buffer
	epochs int
	high   float64 // top of the vertical axis
}

func (d *drawing) printf(format string, args ...any) { fmt.Fprintf(&d.svg, format, args...) }

// text writes a text with its anchor at (x, y).
func (d *drawing) text(x, y float64, anchor, text string) {
	d.printf(`<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(&d.svg, []byte(text)) // writing to a Buffer does not fail
	d.printf("</text>\n")
}

// x returns the coordinate of an epoch, from 1.
func (d *drawing) x(epoch float64) float64 {
	return left + (right-left)*(epoch-1)/max(1, float64(d.epochs-1))
}

// y returns the coordinate of a value.
func (d *drawing) y(value float64) float64 { return bottom - (bottom-top)*value/d.high }

// axes draws both axes, with a mark at each step of the vertical one.
func (d *drawing) axes(step float64) {
	for mark := 0; float64(mark)*step <= d.high+step/2; mark++ {
		v := float64(mark) * step
		d.printf(`<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", left, d.y(v), right)
		d.text(left-8, d.y(v)+4, "end", fmt.Sprintf("%.4g", v))
	}
	marked := max(1, int(stepOf(float64(d.epochs))))
	for epoch := 1; epoch <= d.epochs; epoch++ {
		if epoch == 1 || epoch%marked == 0 {
			d.text(d.x(float64(epoch)), bottom+18, "middle", strconv.Itoa(epoch))
		}
	}
	d.text((left+right)/2, bottom+38, "middle", "epoch")
}

// The colors of Okabe and Ito, "Color Universal Design" (2008), can be told apart with every kind
// of color vision.
var colors = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7"}

// line draws the i-th line and its name.
func (d *drawing) line(i int, l Line) {
	color := colors[i%len(colors)]
	d.printf(`<polyline fill="none" stroke="%s" stroke-width="2" points="`, color)
	for epoch, v := range l.Values {
		if drawn(v) {
			d.printf("%.1f,%.1f ", d.x(float64(epoch+1)), d.y(v))
		}
	}
	d.printf(`"/>` + "\n")
	y := float64(top + 20*(i+1))
	d.printf(`<path d="M%d %.1fh24" stroke="%s" stroke-width="2"/>`+"\n", right-140, y-4, color)
	d.text(right-108, y, "start", l.Name)
}
