package results

import (
	"math"
	"slices"
)

// A State is how far the processors lay apart throughout a turn. The host of a virtual machine moves its processors, and
// times in different states must not be compared.
type State string

// The states.
const (
	Near  State = "near"
	Far   State = "far"
	Mixed State = "mixed" // the state before the turn differs from that after it
)

const (
	// farRatio is the ratio of a round trip to the shortest one from which the processors are far apart.
	farRatio = 1.6
	// rare is the part of the turns below which a state is not shown.
	rare = 0.1
)

// classify sets the round trip from which the processors are far apart, by the shortest one in any of the files.
func classify(files []*File) {
	least := math.Inf(1)
	for _, f := range files {
		for _, e := range f.Entries {
			for _, us := range []float64{e.Before, e.After} {
				if us > 0 {
					least = min(least, us)
				}
			}
		}
	}
	for _, f := range files {
		f.far = farRatio * least
	}
}

func (f *File) state(e Entry) State {
	switch before, after := e.Before >= f.far, e.After >= f.far; {
	case before != after:
		return Mixed
	case before:
		return Far
	}
	return Near
}

// A Census counts the turns in a state.
type Census struct {
	State     State
	Turns     int
	RoundTrip float64 // median, in microseconds
}

// States returns the states that are common enough to be shown, and the number of all turns.
func (f *File) States() (common []Census, turns int) {
	type turn struct {
		round      int
		system, op string
	}
	trips := make(map[State][]float64)
	seen := make(map[turn]bool)
	for _, e := range f.Entries {
		if t := (turn{e.Round, e.System, e.Op}); !seen[t] {
			seen[t] = true
			turns++
			trips[f.state(e)] = append(trips[f.state(e)], (e.Before+e.After)/2)
		}
	}
	for _, s := range []State{Near, Far} {
		if n := len(trips[s]); float64(n) > rare*float64(turns) {
			slices.Sort(trips[s])
			common = append(common, Census{s, n, quantile(trips[s], 0.5)})
		}
	}
	return common, turns
}
