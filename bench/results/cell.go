package results

import (
	"math"
	"slices"
)

// A Point is what is measured: an operation at one size.
type Point struct {
	Op        string
	Bytes     int
	Untouched bool
}

// A Cell has the result of one system at one point in one state, over all turns.
type Cell struct {
	Turns     int     // number of turns with a time
	Samples   int     // iterations of a rank in all turns
	US        float64 // median over the turns, in microseconds
	Low, High float64 // quartiles over the turns, in microseconds
	Wrong     bool    // whether any turn had a wrong element
	Failures  int     // number of turns that failed
}

// Good reports whether the cell has a time and no wrong result.
func (c Cell) Good() bool { return c.Turns > 0 && !c.Wrong }

// Few reports whether the cell has too few samples for a trustworthy median: fewer than 100, or 10 from 8 MiB on.
func (c Cell) Few(bytes int) bool {
	if bytes >= 8<<20 {
		return c.Samples < 10
	}
	return c.Samples < 100
}

// Cell returns the result of a system at a point in a state.
func (f *File) Cell(s System, p Point, state State) Cell {
	var c Cell
	var times []float64
	for _, e := range f.Entries {
		if e.System != s.Name || e.Op != p.Op || e.Bytes != p.Bytes || e.Untouched != p.Untouched || f.state(e) != state {
			continue
		}
		if e.Failed != "" {
			c.Failures++
			continue
		}
		times = append(times, e.US)
		c.Samples += e.Iters
		c.Wrong = c.Wrong || e.Wrong > 0
	}
	slices.Sort(times)
	c.Turns = len(times)
	c.US, c.Low, c.High = quantile(times, 0.5), quantile(times, 0.25), quantile(times, 0.75)
	return c
}

// quantile returns the q-quantile of sorted values, by linear interpolation, or 0 without values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	part := at - float64(i)
	return sorted[i]*(1-part) + sorted[i+1]*part
}

// A Verdict is the result of a comparison of two systems.
type Verdict int

// The results of [Compare].
const (
	Unknown Verdict = iota // one of the cells is not Good
	Faster
	Level // the quartiles overlap, or one of the cells has too few turns
	Slower
)

// turnsMin is the number of turns that a difference needs to be significant.
const turnsMin = 3

// Compare compares ours with other. Times is the ratio of the medians, above 1 where ours is faster,
// and 0 with Unknown.
func Compare(ours, other Cell) (v Verdict, times float64) {
	if !ours.Good() || !other.Good() || ours.US == 0 || other.US == 0 {
		return Unknown, 0
	}
	times = other.US / ours.US
	switch {
	case min(ours.Turns, other.Turns) < turnsMin:
		return Level, times
	case ours.High < other.Low:
		return Faster, times
	case other.High < ours.Low:
		return Slower, times
	}
	return Level, times
}

// best returns the cell of the fastest peer.
func (f *File) best(p Point, state State) Cell {
	var best Cell
	for _, s := range f.Header.Systems {
		if c := f.Cell(s, p, state); !s.Ours && c.Good() && (c.US < best.US || best.Turns == 0) {
			best = c
		}
	}
	return best
}

// Ops returns the operations of the file in the order of their measurement.
func (f *File) Ops() []string {
	var ops []string
	for _, e := range f.Entries {
		if e.Op != "" && e.Op != FirstSecond && !slices.Contains(ops, e.Op) {
			ops = append(ops, e.Op)
		}
	}
	return ops
}

// FirstSecond is the name of the operation that sends 8 B in the first second after the start.
const FirstSecond = "first_second"

// Sizes returns the sizes in bytes of all operations, or of one, in ascending order.
func (f *File) Sizes(ops ...string) []int {
	var sizes []int
	for _, e := range f.Entries {
		if slices.Contains(ops, e.Op) && e.Failed == "" && !slices.Contains(sizes, e.Bytes) {
			sizes = append(sizes, e.Bytes)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// A Tally counts the comparisons of a system with the best peer at each point.
type Tally struct {
	Faster, Level, Slower int
	Mean                  float64 // geometric mean of the ratios, above 1 where ours is faster
}

// Points returns the number of compared points.
func (t Tally) Points() int { return t.Faster + t.Level + t.Slower }

// Tally compares a system with the best peer at all sizes of ops.
func (f *File) Tally(ours System, ops []string, untouched bool, state State) Tally {
	var t Tally
	logs := 0.0
	for _, op := range ops {
		for _, bytes := range f.Sizes(op) {
			p := Point{op, bytes, untouched}
			v, times := Compare(f.Cell(ours, p, state), f.best(p, state))
			switch v {
			case Unknown:
				continue
			case Faster:
				t.Faster++
			case Level:
				t.Level++
			case Slower:
				t.Slower++
			}
			logs += math.Log(times)
		}
	}
	if n := t.Points(); n > 0 {
		t.Mean = math.Exp(logs / float64(n))
	}
	return t
}
