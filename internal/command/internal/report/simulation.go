package report

import (
	"fmt"
	"io"
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
