package results

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	tileWidth  = 8 * vg.Centimeter
	tileHeight = 6.5 * vg.Centimeter
	tileGap    = 4 * vg.Millimeter
	headHeight = 9 * vg.Millimeter // of the title
	smallText  = 8
)

// Draw returns a drawing in SVG. It has a plot of time over size for each operation, with a curve for each system and
// logarithmic axes, in the commonest state of the processors, which its title names.
func (f *File) Draw() ([]byte, error) {
	var ops []string
	for _, op := range f.Ops() {
		if sizes := f.Sizes(op); len(sizes) > 0 && sizes[len(sizes)-1] > 0 {
			ops = append(ops, op)
		}
	}
	states, _ := f.States()
	if len(ops) == 0 || len(states) == 0 {
		return nil, errors.New("cannot draw: no operation with a size was measured")
	}
	state := slices.MaxFunc(states, func(a, b Census) int { return a.Turns - b.Turns })
	// The last tile is for the legend.
	columns := (len(ops) + 2) / 2
	plots := [][]*plot.Plot{make([]*plot.Plot, columns), make([]*plot.Plot, columns)}
	for i, op := range ops {
		p, err := f.plot(op, state.State)
		if err != nil {
			return nil, err
		}
		plots[i/columns][i%columns] = p
	}
	width, height := vg.Length(columns)*tileWidth, 2*tileHeight+headHeight
	canvas := vgsvg.New(width, height)
	area := draw.New(canvas)
	area.SetColor(color.White) // A page with a dark theme would hide the axes.
	area.Fill(area.Rectangle.Path())
	head := plot.New().Title.TextStyle
	head.XAlign, head.YAlign = draw.XCenter, draw.YCenter
	area.FillText(head, vg.Point{X: width / 2, Y: height - headHeight/2},
		fmt.Sprintf("%s: time over size; processors %s (%.2f µs)", f.Header.Title, state.State, state.RoundTrip))
	area = draw.Crop(area, 0, 0, 0, -headHeight)
	tiles := draw.Tiles{
		Rows: 2, Cols: columns, PadX: tileGap, PadY: tileGap,
		PadTop: tileGap, PadBottom: tileGap, PadLeft: tileGap, PadRight: tileGap,
	}
	areas := plot.Align(plots, tiles, area)
	for row := range plots {
		for column, p := range plots[row] {
			if p != nil {
				p.Draw(areas[row][column])
			}
		}
	}
	legend, err := f.legend(ops, state.State)
	if err != nil {
		return nil, err
	}
	legend.Draw(tiles.At(area, columns-1, 1))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	return compact(svg.Bytes()), nil
}

// compact shortens the drawing of vgsvg to about a sixth: consecutive paths of one style become one path, points are whole and
// relative to the one before, and texts name only their size, since all have the same font.
func compact(svg []byte) []byte {
	fonts := regexp.MustCompile(`\s+style="font-family:([^;]*);[^"]*font-size:([^"]*)px"`)
	paths := regexp.MustCompile(`^<path d="(.*)" (style=".*") />$`)
	places := regexp.MustCompile(`<text x="([\d.-]+)" y="([\d.-]+)"`)
	family := ""
	svg = fonts.ReplaceAllFunc(svg, func(text []byte) []byte {
		m := fonts.FindSubmatch(text)
		family = string(m[1])
		return fmt.Appendf(nil, ` font-size="%s"`, m[2])
	})
	svg = places.ReplaceAllFunc(svg, func(text []byte) []byte {
		m := places.FindSubmatch(text)
		return fmt.Appendf(nil, `<text x="%d" y="%d"`, whole(m[1]), whole(m[2]))
	})
	svg = bytes.ReplaceAll(svg, []byte("scale(1, -1)"), []byte("scale(1-1)"))
	var out bytes.Buffer
	style := "" // of the path that is open in out
	for line := range bytes.Lines(svg) {
		line = bytes.TrimSpace(line)
		if bytes.HasPrefix(line, []byte("<!--")) || bytes.HasPrefix(line, []byte("<?xml")) {
			continue
		}
		m := paths.FindSubmatch(line)
		if style != "" && (m == nil || style != string(m[2])) {
			fmt.Fprintf(&out, "\" %s/>\n", style)
			style = ""
		}
		if m == nil {
			if bytes.HasPrefix(line, []byte("<svg")) {
				line = fmt.Appendf(line, ` font-family="%s"`, family)
			}
			out.Write(append(line, '\n'))
			continue
		}
		if style == "" {
			style = string(m[2])
			out.WriteString(`<path d="`)
		}
		out.Write(relative(m[1]))
	}
	return out.Bytes()
}

// relative writes a path with whole coordinates. The ends of lines and arcs are relative to the point before.
func relative(path []byte) []byte {
	steps := regexp.MustCompile(`([MLA])([^MLAZ]* )?([\d.-]+),([\d.-]+)`)
	x, y := 0, 0 // the point before
	return steps.ReplaceAllFunc(path, func(step []byte) []byte {
		m := steps.FindSubmatch(step)
		nextX, nextY := whole(m[3]), whole(m[4])
		toX, toY, command := nextX, nextY, m[1]
		if command[0] != 'M' {
			toX, toY, command = nextX-x, nextY-y, bytes.ToLower(command)
		}
		x, y = nextX, nextY
		return fmt.Appendf(nil, "%s%s%d,%d", command, m[2], toX, toY)
	})
}

// whole parses a number that vgsvg has written, and rounds it.
func whole(number []byte) int {
	v, err := strconv.ParseFloat(string(number), 64)
	if err != nil {
		panic(err) // the pattern admits numbers alone
	}
	return int(math.Round(v))
}

// plot returns the plot of one operation.
func (f *File) plot(op string, state State) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = op, "length of the vector", "time, median"
	p.X.Label.TextStyle.Font.Size, p.Y.Label.TextStyle.Font.Size = smallText, smallText
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(SizeTicks), plot.TickerFunc(TimeTicks)
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = smallText, smallText
	p.Add(plotter.NewGrid())
	for i, s := range f.Header.Systems {
		line, marks, err := f.curve(i, s, op, state)
		if err != nil {
			return nil, err
		}
		if line != nil {
			p.Add(line, marks)
		}
	}
	// The ends of a logarithmic axis must differ, also with a single point.
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Min /= 1.5
		a.Max *= 1.5
	}
	return p, nil
}

// shapes are the markers of the systems, so that the curves differ in a print without color, too.
var shapes = [...]draw.GlyphDrawer{
	draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{}, draw.CircleGlyph{},
}

// paint returns the color of system i: cold ones for the peers, warm ones for nexar.
func (f *File) paint(i int) color.Color {
	peers := []color.Color{
		color.RGBA{0, 92, 185, 255}, color.RGBA{0, 150, 90, 255}, color.RGBA{70, 180, 230, 255},
		color.RGBA{110, 110, 110, 255}, color.RGBA{0, 0, 0, 255}, color.RGBA{120, 80, 190, 255},
	}
	own := []color.Color{color.RGBA{215, 30, 30, 255}, color.RGBA{240, 140, 0, 255}, color.RGBA{190, 60, 150, 255}}
	n := 0
	for _, s := range f.Header.Systems[:i] {
		if s.Ours == f.Header.Systems[i].Ours {
			n++
		}
	}
	if f.Header.Systems[i].Ours {
		return own[n%len(own)]
	}
	return peers[n%len(peers)]
}

// curve returns the curve of system i for an operation, or nil if it has no points.
func (f *File) curve(i int, s System, op string, state State) (*plotter.Line, *plotter.Scatter, error) {
	var at plotter.XYs
	for _, bytes := range f.Sizes(op) {
		if c := f.Cell(s, Point{op, bytes, false}, state); c.Good() && c.US > 0 && bytes > 0 {
			at = append(at, plotter.XY{X: float64(bytes), Y: c.US})
		}
	}
	if len(at) == 0 {
		return nil, nil, nil
	}
	line, marks, err := plotter.NewLinePoints(at)
	if err != nil {
		return nil, nil, err
	}
	line.Color, marks.Color = f.paint(i), f.paint(i)
	marks.Shape = shapes[i%len(shapes)]
	marks.Radius = 2
	line.Width = 1
	if s.Ours {
		line.Width = 2
	}
	return line, marks, nil
}

// legend returns a legend of the systems that have a curve for one of ops.
func (f *File) legend(ops []string, state State) (plot.Legend, error) {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.XOffs, l.YOffs = 10, -10
	l.Padding = 3
	l.TextStyle.Font.Size = 10 // The longest label fits into a tile.
	for i, s := range f.Header.Systems {
		for _, op := range ops {
			line, marks, err := f.curve(i, s, op, state)
			if err != nil {
				return l, err
			}
			if line != nil {
				l.Add("  "+s.Label, line, marks)
				break
			}
		}
	}
	return l, nil
}

// SizeTicks puts marks at the powers of eight, and labels 8 B, 512 B, 32 KiB and so on.
func SizeTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for e := math.Ceil(math.Log2(lo)); e <= math.Log2(hi); e++ {
		if int(e)%3 != 0 {
			continue
		}
		t := plot.Tick{Value: math.Exp2(e)}
		if int(e)%6 == 3 {
			t.Label = Size(1 << int(e))
		}
		ticks = append(ticks, t)
	}
	return ticks
}

// TimeTicks puts marks at 1, 2 and 5 of each decade of microseconds and labels the powers of ten.
func TimeTicks(lo, hi float64) []plot.Tick { return DecimalTicks(lo, hi, decadeLabel) }

// DecimalTicks puts marks at 1, 2 and 5 of each decade and labels the powers of ten.
func DecimalTicks(lo, hi float64, label func(float64) string) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Pow(10, math.Floor(math.Log10(lo))); decade <= hi; decade *= 10 {
		for _, i := range []float64{1, 2, 5} {
			v := i * decade
			if v < lo || v > hi {
				continue
			}
			t := plot.Tick{Value: v}
			if i == 1 {
				t.Label = label(v) + " "
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// decadeLabel formats a power of ten of microseconds, such as "100 µs" or "1 ms".
func decadeLabel(us float64) string {
	switch {
	case us < 999:
		return fmt.Sprintf("%.4g µs", us)
	case us < 999e3:
		return fmt.Sprintf("%.4g ms", us/1e3)
	}
	return fmt.Sprintf("%.4g s", us/1e6)
}
