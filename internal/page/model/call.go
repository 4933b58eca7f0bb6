package model

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// calls are the collectives with a timeline: the newest one, and the slowest of the last minutes.
type calls struct {
	newest *Call
	slow   []*Call // the largest delay first
}

// slowKept limits the age of slow calls.
const slowKept = 10 * time.Minute

// waits reports whether a call runs for longer than usual.
func (c *Call) waits() bool { return c.Running && c.Length >= patience }

// blur is the error of approximate times.
const blur = 20 * time.Millisecond

// delay is the least time between the first and the last rank that began a call.
func (c *Call) delay() (d time.Duration) {
	for _, s := range c.Spans {
		d = max(d, s.Start)
	}
	if c.approximate {
		d = max(0, d-blur)
	}
	return d
}

// add takes the collectives in an answer.
func (k *calls) add(c *trace.Cluster, nodes map[string]*node, epoch uint64, now time.Time) []Call {
	found := make(map[string]*Call)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Snapshot == nil || n.Rank < 0 || n.Snapshot.Epoch != epoch {
			continue
		}
		for j := range n.Snapshot.Operations {
			if o := &n.Snapshot.Operations[j]; o.Seq > 0 && o.Epoch == epoch && o.Purpose == "" {
				addSpan(found, n.Rank, nodes[n.Node].offset, o)
			}
		}
	}
	var list []*Call
	for _, call := range found {
		if len(call.Spans) > 1 {
			call.finish()
			list = append(list, call)
		}
	}
	if len(list) == 0 {
		return k.shown()
	}
	// The current call is one that ranks wait in or, without it, the newest that most ranks have begun: answers of nodes are not of
	// the same instant.
	k.newest = slices.MaxFunc(list, func(a, b *Call) int {
		return cmp.Or(cmp.Compare(btoi(a.waits()), btoi(b.waits())), cmp.Compare(len(a.Spans)+a.Left, len(b.Spans)+b.Left), a.Start.Compare(b.Start))
	})
	for _, call := range list {
		if i := slices.IndexFunc(k.slow, func(s *Call) bool { return s.Key == call.Key }); i >= 0 {
			k.slow[i] = call
		} else {
			k.slow = append(k.slow, call)
		}
	}
	k.slow = slices.DeleteFunc(k.slow, func(s *Call) bool { return now.Sub(s.Start) > slowKept })
	slices.SortStableFunc(k.slow, func(a, b *Call) int { return cmp.Compare(b.delay(), a.delay()) })
	k.slow = k.slow[:min(len(k.slow), callsMax)]
	return k.shown()
}

func (k *calls) shown() (list []Call) {
	if k.newest != nil {
		list = append(list, *k.newest)
	}
	for _, c := range k.slow {
		if len(list) < callsMax && (k.newest == nil || c.Key != k.newest.Key) {
			list = append(list, *c)
		}
	}
	return list
}

// addSpan adds the time of a rank in a collective. Starts are by the clock of the seed.
func addSpan(found map[string]*Call, rank int, offset time.Duration, o *trace.Operation) {
	start := o.Start.Add(-offset)
	key := o.Comm + " " + strconv.FormatUint(o.Seq, 10)
	call := found[key]
	if call == nil {
		call = &Call{Key: key, Title: o.What(), Start: start}
		if o.Comm != "1" {
			call.Title += " on communicator " + o.Comm[:min(len(o.Comm), 8)]
		}
		found[key] = call
	}
	if len(call.Spans) == 0 || start.Before(call.Start) {
		for i := range call.Spans {
			call.Spans[i].Start += call.Start.Sub(start)
		}
		call.Start = start
	}
	call.Running = call.Running || o.Running()
	call.awaited = append(call.awaited, o.Waiting...)
	call.approximate = call.approximate || o.Approximate
	call.Spans = append(call.Spans, Span{Rank: rank, Start: start.Sub(call.Start), Length: o.Duration, Outcome: o.Outcome})
}

// finish bounds the spans of a call to the ranks that came last, and describes them.
func (c *Call) finish() {
	for _, s := range c.Spans {
		c.Length = max(c.Length, s.Start+s.Length)
	}
	slices.SortFunc(c.Spans, func(a, b Span) int { return cmp.Or(cmp.Compare(b.Start, a.Start), cmp.Compare(a.Rank, b.Rank)) })
	missing := c.missing()
	c.words(missing)
	c.Missing, c.awaited = slices.Clone(missing[:min(len(missing), missingMax)]), nil
	if c.Left = max(0, len(c.Spans)-spansMax); c.Left > 0 {
		c.Spans = c.Spans[:spansMax]
	}
	slices.SortFunc(c.Spans, func(a, b Span) int { return cmp.Compare(a.Rank, b.Rank) })
}

// words describes a call. Its spans are sorted by their starts, the last one first.
func (c *Call) words(missing []int) {
	all, last := len(c.Spans), c.Spans[0]
	if c.approximate && !c.Running && c.Length <= blur {
		c.Words = fmt.Sprintf("All %d ranks made this call within %s. Times of brief calls are accurate to 20 ms, so it is not known who was first.", all, short(c.Length))
		return
	}
	before := c.Spans[min(1, all-1)].Start
	switch {
	case c.Running && len(missing) > 0:
		c.Words = fmt.Sprintf("%d ranks began within %s, and have waited for %s for %s.", all, short(last.Start), trace.Ranks(missing), short(c.Length))
	case last.Start < time.Millisecond:
		c.Words = fmt.Sprintf("All %d ranks began within %s.", all, short(last.Start))
	case last.Start > 2*before && last.Start-before > time.Millisecond && all > 2:
		c.Words = fmt.Sprintf("%d ranks began within %s; rank %d began %s later.", all-1, short(before), last.Rank, short(last.Start-before))
	default:
		c.Words = fmt.Sprintf("All %d ranks began within %s, rank %d as the last.", all, short(last.Start), last.Rank)
	}
	switch {
	case !c.Running:
		c.Words += fmt.Sprintf(" The last ended after %s.", short(c.Length))
	case len(missing) == 0:
		c.Words += fmt.Sprintf(" It has run for %s.", short(c.Length))
	}
	if c.approximate {
		c.Words += " Times are accurate to 20 ms."
	}
}

// missing returns the ranks that ranks in the call wait for and that have not begun it.
func (c *Call) missing() []int {
	begun := make(map[int]bool)
	for _, s := range c.Spans {
		begun[s.Rank] = true
	}
	slices.Sort(c.awaited)
	return slices.Compact(slices.DeleteFunc(c.awaited, func(r int) bool { return begun[r] }))
}

// short formats a duration with about two decimals: "3.26 s".
func short(d time.Duration) string {
	if d >= 2*time.Minute {
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	unit, name := time.Microsecond, "µs"
	switch d = max(d, time.Microsecond); {
	case d >= time.Second:
		unit, name = time.Second, "s"
	case d >= time.Millisecond:
		unit, name = time.Millisecond, "ms"
	}
	return strconv.FormatFloat(float64(d.Round(unit/100))/float64(unit), 'f', -1, 64) + " " + name
}
