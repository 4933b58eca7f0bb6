package bench

// NearBest limits the ratio of the times of the chosen and the fastest algorithm. Up to it the
// choice counts as good.
const NearBest = 1.15

// A Verdict summarizes the choices of algorithms for an operation.
type Verdict struct {
	Op    string
	Sizes int // measured sizes
	Near  int // sizes with a good choice, by NearBest
	// Worst is the largest ratio of the times of the chosen and the fastest algorithm.
	// Chosen and Fastest are these two.
	Worst           float64
	Chosen, Fastest Way
}

// Judge returns the Verdict for each operation, in the order of the list.
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
