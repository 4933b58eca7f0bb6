package model

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// patience is the time after which a call that waits for others is shown as one that waits. In a cluster that works, calls wait for
// each other for less.
const patience = time.Second

// An analysis has the findings of an answer, and the states of ranks in them.
type analysis struct {
	epoch    uint64
	findings []trace.Finding
	state    map[int]State // of the ranks in findings
	waited   map[int]time.Duration
	stuck    bool // some ranks wait for others for longer than patience
}

func analyze(c *trace.Cluster) *analysis {
	a := &analysis{findings: c.Findings(), state: make(map[int]State), waited: make(map[int]time.Duration)}
	for i := range c.Nodes {
		if s := c.Nodes[i].Snapshot; s != nil {
			a.epoch = max(a.epoch, s.Epoch)
		}
	}
	states := map[string]State{trace.Mismatch: Late, trace.Deadlock: Deadlock, trace.Silent: NoAnswer, trace.Stalled: Late}
	for _, f := range a.findings {
		state, ok := states[f.State]
		if a.stuck = a.stuck || ok; !ok {
			continue
		}
		for _, r := range f.Ranks {
			if a.state[r] == "" {
				a.state[r], a.waited[r] = state, f.For
			}
		}
	}
	return a
}

// level returns how urgent the most important finding is.
func (a *analysis) level() Level {
	switch a.findings[0].State {
	case trace.Mismatch, trace.Deadlock, trace.Silent:
		return Broken
	case trace.Stalled, trace.Lost:
		return Slow
	case trace.Forming, trace.Changing:
		return Forming
	}
	return Calm
}

// main returns the running call of a rank that is shown: one that waits or, without it, the one that has run longest.
func (a *analysis) main(s *trace.Snapshot) (main *trace.Operation) {
	if s == nil || s.Epoch != a.epoch {
		return nil
	}
	for i := range s.Operations {
		o := &s.Operations[i]
		if o.Running() && o.Epoch == a.epoch && (main == nil || len(main.Waiting) == 0 && len(o.Waiting) > 0) {
			main = o
		}
	}
	return main
}

// waits reports whether a call is shown as one that waits.
func (a *analysis) waits(o *trace.Operation) bool {
	return a.stuck && o.Duration >= patience && len(o.Waiting) > 0
}

// rank returns the view of a node, and keeps its counts for the next answer.
func (n *node) rank(of *trace.Node, a *analysis, now time.Time) Rank {
	r := Rank{Node: of.Node, Rank: of.Rank, PID: of.Name[strings.LastIndexByte(of.Name, ':')+1:], State: Works, Rate: -1}
	s := of.Snapshot
	o := a.main(s)
	switch {
	case s == nil && (of.Rank < 0 || a.epoch == 0):
		r.State, r.Words = Joining, of.Missing
	case s == nil:
		r.State, r.Words = NoAnswer, of.Missing
	case s.Epoch < a.epoch:
		r.State, r.Words = Behind, fmt.Sprintf("is still in epoch %d", s.Epoch)
	case o == nil:
		r.Words, r.Site = "in no call", s.Site
		r.last(s, now)
	default:
		r.in(o, now)
		if a.waits(o) {
			r.State, r.Words = Waits, "for "+r.For
		}
	}
	if state := a.state[of.Rank]; state != "" && s != nil && r.State != Behind {
		if r.State == Waits {
			r.Words = "waits " + r.Words
		}
		r.State = state
		if state == Late {
			r.Words = strings.TrimPrefix(r.Words+"; others wait for it", "; ")
		}
	}
	if r.State != n.state {
		n.state, n.since = r.State, now.Add(-a.waited[of.Rank]).Truncate(time.Millisecond)
	}
	if r.State == Late || r.State == NoAnswer || r.Since.IsZero() && r.State != Works {
		r.Since = n.since
	}
	if r.State == Works && now.Sub(r.Since) < time.Second {
		r.Since = time.Time{}
	}
	if s != nil {
		r.Rate, r.Memory = threeDigits(n.move(s)), uint64(threeDigits(float64(s.Process.HeapBytes)))
	}
	return r
}

// in describes a rank in a call.
func (r *Rank) in(o *trace.Operation, now time.Time) {
	r.Call, r.Busy, r.Plan, r.Site, r.Words = o.What(), true, o.Plan, o.Site, "in a call"
	// The duration does not depend on the clock of the node.
	r.Since = now.Add(-o.Duration).Truncate(100 * time.Millisecond)
	r.For = o.WaitsFor()
	if o.Rounds > 1 {
		r.Round = fmt.Sprintf("%d of %d", o.Round, o.Rounds)
	}
}

// last describes the last call of a rank that is in none.
func (r *Rank) last(s *trace.Snapshot, now time.Time) {
	for i := range slices.Backward(s.Operations) {
		o := &s.Operations[i]
		if o.Running() || o.Epoch != s.Epoch || o.Purpose != "" {
			continue
		}
		r.Call, r.Plan = o.What(), o.Plan
		if o.Outcome != trace.OK {
			r.Words = "in no call; the last one failed: " + o.Outcome
		}
		// Both times are by the clock of the node.
		r.Since = now.Add(-max(0, s.Time.Sub(o.Start.Add(o.Duration)))).Truncate(100 * time.Millisecond)
		return
	}
}

// drift is the largest difference of the speeds of two clocks, in seconds per million.
const drift = 50

// compare keeps the best comparison of the clock of the node with that of the seed. It gets worse with time.
func (n *node) compare(of *trace.Node) {
	s := of.Snapshot
	if s == nil {
		return
	}
	if passed := s.Time.Sub(n.compared); n.compared.IsZero() || of.OffsetError <= n.offsetError+passed*drift/1_000_000 {
		n.offset, n.offsetError, n.compared = of.Offset, of.OffsetError, s.Time
		if n.offset.Abs() <= n.offsetError { // Most clocks agree.
			n.offset = 0
		}
	}
}

// threeDigits rounds a number, so that a browser gets less of it and less often.
func threeDigits(x float64) float64 {
	if x < 1000 {
		return math.Round(x)
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-2)
	return math.Round(x/unit) * unit
}

// move returns the bytes per second of the calls of a node since its snapshot before, or -1.
func (n *node) move(s *trace.Snapshot) float64 {
	bytes := uint64(0)
	for i := range s.Counters {
		bytes += s.Counters[i].Bytes
	}
	took := s.Time.Sub(n.time).Seconds()
	switch {
	case n.time.IsZero() || bytes < n.bytes:
		n.rate = -1
	case took <= 0:
		return n.rate
	default:
		n.rate = float64(bytes-n.bytes) / took
	}
	n.bytes, n.time = bytes, s.Time
	return n.rate
}

// groups returns the waits of ranks for others, with the ranks of one call together.
func (a *analysis) groups(c *trace.Cluster, now time.Time) []Wait {
	type group struct{ call, whom string }
	by, who := make(map[group]*Wait), make(map[group][]int)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		o := a.main(n.Snapshot)
		if o == nil || n.Rank < 0 || !a.waits(o) {
			continue
		}
		g := group{o.What(), o.WaitsFor()}
		since := now.Add(-o.Duration).Truncate(100 * time.Millisecond)
		if by[g] == nil {
			by[g] = &Wait{For: g.whom, Call: g.call, Since: since}
		}
		w := by[g]
		if since.Before(w.Since) {
			w.Since = since
		}
		w.Level = max(w.Level, a.state[n.Rank].level())
		who[g] = append(who[g], n.Rank)
	}
	var list []Wait
	for g, w := range by {
		w.Who = trace.Ranks(who[g])
		list = append(list, *w)
	}
	slices.SortFunc(list, func(a, b Wait) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.Who, b.Who)
	})
	return list[:min(len(list), waitsMax)]
}
