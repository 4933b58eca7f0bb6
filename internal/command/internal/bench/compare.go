package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar"
)

// A Comparison has the results of all measured algorithms for one collective at one size.
type Comparison struct {
	Op        string
	Ranks     int
	Bytes     int64
	Transport string
	Encrypted bool
	Device    string // with the vectors of rank 0, if they are not in memory of the host
	Rounds    int    // in each, every algorithm has one turn
	Runs      int    // in a turn; if there are several, the first is not counted
	// Ways are the results: first the chosen algorithm, then the others by predicted time.
	Ways []Way
	// Left are the algorithms that were not measured: their predicted time is more than
	// SlowerMax times the shortest one.
	Left []nexar.Algorithm
}

// A Way is the result of one algorithm. Times are in microseconds.
type Way struct {
	Op        string  `json:"op"`
	Ranks     int     `json:"ranks"`
	Bytes     int64   `json:"bytes"`
	Transport string  `json:"transport"`
	Encrypted bool    `json:"encrypted"`
	Algorithm string  `json:"algorithm"`
	Channels  int     `json:"channels"`
	Shared    bool    `json:"shared"`       // in shared memory; false: over links
	Predicted float64 `json:"predicted_us"` // 0: unknown
	P50       float64 `json:"p50_us"`       // median over the rounds of the slowest rank's median
	Q1        float64 `json:"q1_us"`        // lower and upper quartile over the rounds
	Q3        float64 `json:"q3_us"`
	Chosen    bool    `json:"chosen"` // used by calls when Compare began
	// ChosenBy is nexar.Algorithm.ChosenBy: "model", "setting", "hint", or empty.
	ChosenBy string `json:"chosen_by"`
	Fastest  bool   `json:"fastest"` // the smallest median
	Wrong    int64  `json:"wrong"`   // wrong elements, over all ranks and runs

	// Device is the one with the vectors of rank 0, if they are not in memory of the host. Predicted and Chosen are for
	// memory of the host also then.
	Device string `json:"device,omitempty"`
}

// SlowerMax limits the predicted time of measured algorithms, as a multiple of the shortest
// predicted time.
const SlowerMax = 8

// Collectives returns the names of the operations that have several algorithms.
func Collectives() (names []string) {
	for _, o := range ops() {
		if o.messages == 0 {
			names = append(names, o.name)
		}
	}
	return names
}

// Compare measures all algorithms of collectives. Every rank calls it. The algorithms take turns,
// so that a disturbance of the machine affects all alike. An algorithm that was set on the
// communicator counts as chosen; Compare ends with no algorithm set.
func Compare(ctx context.Context, c *nexar.Comm, cfg Config) error {
	if len(cfg.Ops) == 0 {
		cfg.Ops = Collectives()
	}
	cells, err := cfg.cells(c.Size())
	if err != nil {
		return err
	}
	lists := make([][]nexar.Algorithm, len(cells))
	for i, cell := range cells {
		// The choices are taken before the first algorithm is pinned.
		if lists[i], err = c.Algorithms(cell.op.name, int(cell.bytes)); err != nil {
			return err
		}
	}
	return each(ctx, c, cfg, cells, func(r *rank, i int, pace pace, share time.Duration) error {
		result, err := r.compare(ctx, cells[i], lists[i], pace, share)
		if err == nil && c.Rank() == 0 && cfg.Compared != nil {
			cfg.Compared(result)
		}
		return err
	})
}

// A contest is the measurement of all algorithms of a cell.
type contest struct {
	*rank
	cell  cell
	v     vectors
	list  []nexar.Algorithm
	turns [][]time.Duration // medians of turns, by round and algorithm
	wrong []int64           // by algorithm
}

// compare measures one cell, for about the time share.
func (r *rank) compare(ctx context.Context, c cell, list []nexar.Algorithm, pace pace, share time.Duration) (Comparison, error) {
	began := time.Now()
	kept, left := worthwhile(list)
	t := &contest{rank: r, cell: c, v: c.op.vectors(r.place(c)), list: kept, wrong: make([]int64, len(kept))}
	// The first run of an algorithm compiles its plan. The second one is timed.
	var sweep time.Duration
	for range 2 {
		start := time.Now()
		if _, err := t.round(ctx, 0, 1); err != nil {
			return Comparison{}, err
		}
		sweep = time.Since(start)
	}
	rounds, runs := pace.rounds(sweep, share-time.Since(began))
	decided := []int64{int64(rounds), int64(runs)}
	if err := nexar.Broadcast(ctx, r.comm, decided, 0); err != nil {
		return Comparison{}, err
	}
	for k := range int(decided[0]) {
		turns, err := t.round(ctx, k, int(decided[1]))
		if err != nil {
			return Comparison{}, err
		}
		t.turns = append(t.turns, turns)
	}
	result := Comparison{
		Op: c.op.name, Ranks: r.comm.Size(), Bytes: c.bytes, Transport: r.comm.Transport(), Encrypted: r.comm.Encrypted(),
		Device: r.onDevice(), Rounds: int(decided[0]), Runs: int(decided[1]), Left: left,
	}
	return result, t.combine(ctx, &result)
}

// worthwhile divides algorithms into those to measure and the others, by SlowerMax. The first
// is the chosen one and is always measured.
func worthwhile(list []nexar.Algorithm) (kept, left []nexar.Algorithm) {
	fastest := time.Duration(0)
	for _, a := range list {
		if a.Predicted > 0 && (fastest == 0 || a.Predicted < fastest) {
			fastest = a.Predicted
		}
	}
	for i, a := range list {
		if i == 0 || a.Predicted <= SlowerMax*fastest {
			kept = append(kept, a)
		} else {
			left = append(left, a)
		}
	}
	return kept, left
}

// round gives every algorithm a turn of runs, and returns the median of each. Rounds begin with
// different algorithms, so that none is always first.
func (t *contest) round(ctx context.Context, number, runs int) ([]time.Duration, error) {
	medians := make([]time.Duration, len(t.list))
	for k := range t.list {
		i := (number + k) % len(t.list)
		a := t.list[i]
		if err := t.comm.SetAlgorithms(pin(t.cell.op.name, a)); err != nil {
			return nil, err
		}
		times := make([]time.Duration, runs)
		for k := range times {
			took, wrong, err := t.once(ctx, t.cell, t.v)
			if err != nil {
				return nil, fmt.Errorf("%d bytes by %s: %w", t.cell.bytes, a.Name, err)
			}
			times[k] = took
			t.wrong[i] += int64(wrong)
		}
		if runs > 1 {
			times = times[1:] // The first run after another algorithm is slower.
		}
		slices.Sort(times)
		medians[i] = times[len(times)/2]
	}
	return medians, t.comm.SetAlgorithms()
}

// pin returns the argument of Comm.SetAlgorithms for an algorithm.
func pin(op string, a nexar.Algorithm) string {
	if a.Shared {
		return op + "=" + a.Name
	}
	return fmt.Sprintf("%s=%s/%d", op, a.Name, a.Channels)
}

// combine combines the measurements of all ranks into one result.
func (t *contest) combine(ctx context.Context, result *Comparison) error {
	slowest := make([]float64, 0, len(t.turns)*len(t.list))
	for _, round := range t.turns {
		for _, took := range round {
			slowest = append(slowest, float64(took)/float64(time.Microsecond))
		}
	}
	if err := nexar.AllReduce(ctx, t.comm, slowest, nexar.Max); err != nil {
		return err
	}
	if err := nexar.AllReduce(ctx, t.comm, t.wrong, nexar.Sum); err != nil {
		return err
	}
	fastest := 0
	for i, a := range t.list {
		w := Way{
			Op: result.Op, Ranks: result.Ranks, Bytes: result.Bytes, Transport: result.Transport, Encrypted: result.Encrypted,
			Device: result.Device, Algorithm: a.Name, Channels: a.Channels, Shared: a.Shared, Chosen: i == 0, ChosenBy: a.ChosenBy, Wrong: t.wrong[i],
			Predicted: float64(a.Predicted) / float64(time.Microsecond),
		}
		w.quartiles(slowest, i, len(t.list))
		result.Ways = append(result.Ways, w)
		if w.P50 < result.Ways[fastest].P50 {
			fastest = i
		}
	}
	result.Ways[fastest].Fastest = true
	return nil
}

// quartiles returns the quartiles of every step-th time, beginning with first.
func (w *Way) quartiles(times []float64, first, step int) {
	var own []float64
	for i := first; i < len(times); i += step {
		own = append(own, times[i])
	}
	slices.Sort(own)
	at := func(q float64) float64 { return own[int(q*float64(len(own)-1)+0.5)] }
	w.Q1, w.P50, w.Q3 = at(0.25), at(0.5), at(0.75)
}
