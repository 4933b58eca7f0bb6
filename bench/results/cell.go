package results

import (
	"math"
	"slices"
)

// A Cell has the result of one system for one operation and size, over all rounds.
type Cell struct {
	Rounds    int     // number of rounds with a time
	US        float64 // median over the rounds, in microseconds
	Low, High float64 // quartiles over the rounds, in microseconds
	Wrong     bool    // whether any round had a wrong element
	Failures  int     // number of rounds that failed
}

// Good reports whether the cell has a time and no wrong result.
func (c Cell) Good() bool { return c.Rounds > 0 && !c.Wrong }

// boundOp is the operation that measures the bound of System.Bound.
const boundOp = "copy_only"

// Cell returns the result of a system for an operation and size. For a bound it is the same for all
// operations.
func (f *File) Cell(s System, op string, bytes int) Cell {
	var c Cell
	var times []float64
	if s.Bound {
		op = boundOp
	}
	for _, e := range f.Entries {
		if e.System != s.Name || e.Op != op || e.Bytes != bytes {
			continue
		}
		if e.Failed != "" {
			c.Failures++
			continue
		}
		times = append(times, e.US)
		c.Wrong = c.Wrong || e.Wrong > 0
	}
	slices.Sort(times)
	c.Rounds = len(times)
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
	Level // the quartiles overlap, or one of the cells has too few rounds
	Slower
)

// roundsMin is the number of rounds that a difference needs to be significant.
const roundsMin = 3

// Compare compares ours with other. Times is the ratio of the medians, above 1 where ours is faster,
// and 0 with Unknown.
func Compare(ours, other Cell) (v Verdict, times float64) {
	if !ours.Good() || !other.Good() || ours.US == 0 || other.US == 0 {
		return Unknown, 0
	}
	times = other.US / ours.US
	switch {
	case min(ours.Rounds, other.Rounds) < roundsMin:
		return Level, times
	case ours.High < other.Low:
		return Faster, times
	case other.High < ours.Low:
		return Slower, times
	}
	return Level, times
}

// Ops returns the operations of the file in the order of their measurement, without copy_only.
func (f *File) Ops() []string {
	var ops []string
	for _, e := range f.Entries {
		if e.Op != "" && e.Op != boundOp && !slices.Contains(ops, e.Op) {
			ops = append(ops, e.Op)
		}
	}
	return ops
}

// Sizes returns the sizes in bytes at which any system has measured the operation, in ascending order.
func (f *File) Sizes(op string) []int {
	var sizes []int
	for _, e := range f.Entries {
		if e.Op == op && e.US > 0 && !slices.Contains(sizes, e.Bytes) {
			sizes = append(sizes, e.Bytes)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// A Tally counts the results of [Compare] over all operations and sizes of a file.
type Tally struct {
	Faster, Level, Slower int
	Mean                  float64 // geometric mean of the ratios, above 1 where ours is faster
}

// Points returns the number of compared operations and sizes.
func (t Tally) Points() int { return t.Faster + t.Level + t.Slower }

// Tally compares two systems at all operations and sizes with a good cell of both.
func (f *File) Tally(ours, other System) Tally {
	var t Tally
	logs := 0.0
	for _, op := range f.Ops() {
		for _, bytes := range f.Sizes(op) {
			v, times := Compare(f.Cell(ours, op, bytes), f.Cell(other, op, bytes))
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
