package bench

// NearBest is the largest ratio of the time of the chosen algorithm to that of the fastest at
// which the choice counts as near.
const NearBest = 1.15

// A Verdict says how good the choices of algorithms for an operation were.
type Verdict struct {
	Op    string
	Sizes int // that were measured
	Near  int // at how many of them the choice was near to the fastest
	// Worst is the largest ratio of the time of the choice to that of the
	// fastest, which these were.
	Worst           float64
	Chosen, Fastest Way
}

// Judge finds the Verdict on each operation, in the order of the list.
func Judge(list []Comparison) []Verdict {
	var verdicts []Verdict
	for _, c := range list {
		if len(verdicts) == 0 || verdicts[len(verdicts)-1].Op != c.Op {
			verdicts = append(verdicts, Verdict{Op: c.Op})
		}
		verdicts[len(verdicts)-1].add(c)
	}
	return verdicts
}

func (v *Verdict) add(c Comparison) {
	var chosen, fastest Way
	for _, w := range c.Ways {
		if w.Chosen {
			chosen = w
		}
		if w.Fastest {
			fastest = w
		}
	}
	ratio := 1.0
	if fastest.P50 > 0 {
		ratio = chosen.P50 / fastest.P50
	}
	v.Sizes++
	if ratio <= NearBest {
		v.Near++
	}
	if ratio > v.Worst {
		v.Worst, v.Chosen, v.Fastest = ratio, chosen, fastest
	}
}
