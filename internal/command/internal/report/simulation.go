package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// A Prediction is the simulated time of one algorithm.
type Prediction struct {
	Op           string  `json:"op"`
	Ranks        int     `json:"ranks"`
	Bytes        int64   `json:"bytes"`
	Topology     string  `json:"topology"`
	Algorithm    string  `json:"algorithm"`
	Channels     int     `json:"channels"`
	Micros       float64 `json:"time_us"`
	Messages     int64   `json:"messages"`
	Sent         int64   `json:"sent_bytes"`
	BusiestLink  string  `json:"busiest_link"`
	BusiestBytes int64   `json:"busiest_bytes"`
	Symmetric    bool    `json:"symmetric"`
	Best         bool    `json:"best"`
}

// A Simulation has the predictions for all algorithms of an operation of one size. Left has, for each
// algorithm that was left out, the reason.
type Simulation struct {
	Predictions []Prediction
	Left        []string
}

// MarkBest marks the algorithm that takes the least time.
func (s Simulation) MarkBest() {
	best := 0
	for i := range s.Predictions {
		if s.Predictions[i].Micros < s.Predictions[best].Micros {
			best = i
		}
	}
	if len(s.Predictions) > 0 {
		s.Predictions[best].Best = true
	}
}

// Simulations writes simulations as tables, one for each operation and number of ranks. The algorithms
// that were left out are listed once.
type Simulations struct {
	w     io.Writer
	title string
}

// NewSimulations returns a Simulations that writes to w.
func NewSimulations(w io.Writer) *Simulations { return &Simulations{w: w} }

// Add writes the rows of s, preceded by a heading if they begin an operation or a number of ranks.
func (t *Simulations) Add(s Simulation) error {
	if len(s.Predictions) == 0 {
		return nil
	}
	var b strings.Builder
	p := s.Predictions[0]
	title := fmt.Sprintf("%s, %s, %s", p.Op, humanizedRanks(p.Ranks), p.Topology)
	if p.Channels > 1 {
		title += fmt.Sprintf(", %d channels", p.Channels)
	}
	if title != t.title {
		if t.title != "" {
			b.WriteString("\n")
		}
		t.title = title
		b.WriteString(title + "\n")
		for _, reason := range s.Left {
			fmt.Fprintf(&b, "  left out: %s\n", reason)
		}
		fmt.Fprintf(&b, "%14s  %-20s %10s %12s %14s  %-22s\n", "size", "algorithm", "time", "messages", "busiest link", "")
	}
	for i, p := range s.Predictions {
		size := ""
		if i == 0 {
			size = Size(p.Bytes)
			if p.Bytes == 0 {
				size = "-"
			}
		}
		var marks []string
		if p.Best {
			marks = append(marks, "best")
		}
		if p.Symmetric {
			marks = append(marks, "by symmetry")
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%14s  %-20s %10s %12s %14s  %-22s %s", size, p.Algorithm, Micros(p.Micros),
			humanize.Comma(p.Messages), humanize.IBytes(uint64(p.BusiestBytes)), p.BusiestLink, strings.Join(marks, ", ")), " ") + "\n")
	}
	_, err := io.WriteString(t.w, b.String())
	return err
}

func humanizedRanks(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return humanize.Comma(int64(n)) + " ranks"
}

// DrawSimulations writes an SVG with two charts: the time over the size, and the bytes over the busiest
// link over the size, with one curve for each algorithm. Operations without a size are left out.
func DrawSimulations(w io.Writer, list []Simulation) error {
	times := chart{vertical: "time"}
	loads := chart{vertical: "bytes", inBytes: true, title: "bytes over the busiest link between hosts"}
	several := false
	for _, s := range list {
		for _, p := range s.Predictions {
			first := list[0].Predictions[0]
			several = several || p.Op != first.Op || p.Ranks != first.Ranks
		}
	}
	drawn := fastest(list, curvesMax)
	for _, s := range list {
		for _, p := range s.Predictions {
			if p.Bytes == 0 || !drawn[seriesOf(p)] {
				continue
			}
			name := p.Algorithm
			if several {
				name = fmt.Sprintf("%s, %d: %s", p.Op, p.Ranks, name)
			}
			times.title = fmt.Sprintf("%s, %s, %s: simulated time", p.Op, humanizedRanks(p.Ranks), p.Topology)
			if several {
				times.title = p.Topology + ": simulated time"
			}
			if p.Micros > 0 {
				l := times.named(name)
				l.measured = append(l.measured, point{float64(p.Bytes), p.Micros})
				if p.Best {
					l.best = append(l.best, l.measured[len(l.measured)-1])
				}
			}
			if p.BusiestBytes > 0 {
				l := loads.named(name)
				l.measured = append(l.measured, point{float64(p.Bytes), float64(p.BusiestBytes)})
			}
		}
	}
	times.title += ", the best of each size circled"
	switch {
	case len(times.curves) == 0:
		return errors.New("nothing to draw: no simulated operation has a size")
	case len(loads.curves) == 0:
		return writeCharts(w, &times)
	}
	return writeCharts(w, &times, &loads)
}

// curvesMax is the largest number of curves that a reader tells apart: each has a color of its own.
const curvesMax = 6

// A series is a curve: the predictions of an algorithm for one operation and number of ranks.
type series struct {
	op, algorithm string
	ranks         int
}

func seriesOf(p Prediction) series { return series{p.Op, p.Algorithm, p.Ranks} }

// fastest returns the series that come closest to the best time of their size, at most n.
func fastest(list []Simulation, n int) map[series]bool {
	closest := make(map[series]float64) // the least ratio to the best time
	for _, s := range list {
		best := math.Inf(1)
		for _, p := range s.Predictions {
			best = min(best, p.Micros)
		}
		for _, p := range s.Predictions {
			if ratio := p.Micros / best; p.Bytes > 0 && best > 0 && (closest[seriesOf(p)] == 0 || ratio < closest[seriesOf(p)]) {
				closest[seriesOf(p)] = ratio
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(closest), func(a, b series) int {
		return cmp.Or(cmp.Compare(closest[a], closest[b]), cmp.Compare(a.op, b.op), cmp.Compare(a.ranks, b.ranks), cmp.Compare(a.algorithm, b.algorithm))
	})
	drawn := make(map[series]bool)
	for _, s := range order[:min(n, len(order))] {
		drawn[s] = true
	}
	return drawn
}
