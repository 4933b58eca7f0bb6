package results

import (
	"math"
	"slices"
)

// A Cell is one system at one operation and size, over all rounds.
type Cell struct {
	Rounds    int     // that have a time
	US        float64 // the median over the rounds, in microseconds
	Low, High float64 // the quartiles
	Wrong     bool    // in any round
	Failures  int
}

// Good reports whether the cell has a time that counts.
func (c Cell) Good() bool { return c.Rounds > 0 && !c.Wrong }

// boundOp is the operation with the lower bound for all others.
const boundOp = "copy_only"

// Cell is one system at one operation and size. That of a bound is the same
// for all operations.
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

// quantile interpolates between the two nearest of the sorted values.
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

// A Verdict says how one system stands to another.
type Verdict int

// Verdicts of a first system about a second one.
const (
	Unknown Verdict = iota // one of them has no time that counts
	Faster
	Level // the quartiles overlap, or there are too few rounds to tell
	Slower
)

// roundsMin is from how many rounds on a difference may be told from chance.
const roundsMin = 3

// Compare says how ours stands to other, and how many times faster it is.
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

// Ops returns the operations of the file in the order of their measurement, without that of the bound.
func (f *File) Ops() []string {
	var ops []string
	for _, e := range f.Entries {
		if e.Op != "" && e.Op != boundOp && !slices.Contains(ops, e.Op) {
			ops = append(ops, e.Op)
		}
	}
	return ops
}

// Sizes are the sizes at which any system has measured the operation.
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

// A Tally counts how one system stands to another over all points of a file.
type Tally struct {
	Faster, Level, Slower int
	Mean                  float64 // geometric, of how many times faster
}

// Points are all that were compared.
func (t Tally) Points() int { return t.Faster + t.Level + t.Slower }

// Tally compares two systems at all operations and sizes that both have.
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
