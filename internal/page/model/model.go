package model

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// ratesStep is the time of a point of View.Rates.
const ratesStep = 2 * time.Second

// A Model makes a View of each answer, and remembers parts of it for the next one. Its zero value is ready.
type Model struct {
	nodes map[string]*node // by NodeID
	calls calls
	rates []Rate
	view  View
}

// A node has the memory of a Model for one node.
type node struct {
	state State
	since time.Time // of the state
	bytes uint64    // of its calls, at the time
	time  time.Time // of its snapshot
	rate  float64

	offset      time.Duration // of its clock, off by at most offsetError when they were compared
	offsetError time.Duration
	compared    time.Time

	sent   map[int]uint64 // by rank of the other end of a link, at linked
	linked time.Time
}

// Fail returns the last View as one that a silent seed has left, for the reason.
func (m *Model) Fail(reason string, now time.Time) View {
	if m.view.Silent.IsZero() {
		m.view.Silent = now
	}
	m.view.Level, m.view.Problem = Broken, reason
	m.view.Sentence = "The seed does not answer."
	if !m.view.Time.IsZero() {
		m.view.Sentence = "The seed does not answer; below is its last answer."
	}
	return m.view
}

// Add returns the View of an answer of the seed, which came at a time.
func (m *Model) Add(c trace.Cluster, now time.Time) View {
	v := View{Time: now, Formed: c.Formed, Epoch: c.Epoch, World: c.World, Joined: c.Joined, Waiting: c.Waiting, Rate: -1}
	a := analyze(&c)
	hosts := make(map[string]*Host)
	nodes := make(map[string]*node, len(c.Nodes))
	for i := range c.Nodes {
		n := &c.Nodes[i]
		kept := m.nodes[n.Node]
		if kept == nil {
			kept = &node{}
		}
		nodes[n.Node] = kept
		kept.compare(n)
		r := kept.rank(n, a, now)
		if r.Rate >= 0 {
			v.Rate = max(v.Rate, 0) + r.Rate
		}
		v.Memory += r.Memory
		name := hostOf(n)
		if hosts[name] == nil {
			hosts[name] = &Host{Name: name}
		}
		hosts[name].Ranks = append(hosts[name].Ranks, r)
	}
	m.nodes = nodes
	v.Links, v.Classes = m.links(&c)
	for _, h := range hosts {
		h.finish()
		v.Hosts = append(v.Hosts, *h)
	}
	slices.SortFunc(v.Hosts, func(a, b Host) int {
		return cmp.Or(cmp.Compare(uint(a.Ranks[0].Rank), uint(b.Ranks[0].Rank)), cmp.Compare(a.Name, b.Name))
	})
	v.Level, v.Sentence = a.level(), a.findings[0].Text
	for _, f := range a.findings[1:] {
		if f.State != trace.Working {
			v.More = append(v.More, f.Text)
		}
	}
	v.Waits = a.groups(&c, now)
	v.Calls = m.calls.add(&c, m.nodes, a.epoch, now)
	v.Changes = changes(&c, now)
	m.rates = addRate(m.rates, v.Rate, now)
	v.Rates = slices.Clone(m.rates)
	m.view = v
	return v
}

// addRate adds a rate to a bounded series of the last minutes. Each point is the mean of the rates of its time.
func addRate(rates []Rate, bytes float64, now time.Time) []Rate {
	if bytes < 0 {
		return rates
	}
	step := now.Truncate(ratesStep)
	if last := len(rates) - 1; last >= 0 && !rates[last].Time.Before(step) {
		rates[last].Bytes = (rates[last].Bytes + bytes) / 2
		return rates
	}
	rates = append(rates, Rate{step, bytes})
	rates = slices.DeleteFunc(rates, func(r Rate) bool { return now.Sub(r.Time) > ratesMax*ratesStep })
	return rates[max(0, len(rates)-ratesMax):]
}

// hostOf returns the host of a node: that of its name or, if it has none, of its address.
func hostOf(n *trace.Node) string {
	if i := strings.LastIndexByte(n.Name, ':'); i > 0 {
		return n.Name[:i]
	}
	if i := strings.LastIndexByte(n.Addr, ':'); i > 0 {
		return n.Addr[:i]
	}
	return cmp.Or(n.Name, "unknown host")
}

// finish sums up the ranks of a host.
func (h *Host) finish() {
	slices.SortFunc(h.Ranks, func(a, b Rank) int { return cmp.Compare(uint(a.Rank), uint(b.Rank)) })
	by := make(map[State][]int)
	for _, r := range h.Ranks {
		h.Level = max(h.Level, r.State.level())
		h.Rate += max(r.Rate, 0)
		by[r.State] = append(by[r.State], r.Rank)
	}
	var parts []string
	for _, s := range slices.SortedFunc(maps.Keys(by), func(a, b State) int {
		return cmp.Or(cmp.Compare(b.level(), a.level()), cmp.Compare(b, a))
	}) {
		parts = append(parts, phrase(s, by[s]))
	}
	h.Words = strings.Join(parts, ", ")
}

// phrase is "rank 7 is late" or "8 ranks work".
func phrase(s State, list []int) string {
	one := map[State]string{Works: "works", Waits: "waits", Late: "is late", Deadlock: "is in a deadlock", NoAnswer: "does not answer", Behind: "is in an earlier epoch", Joining: "joins"}
	many := map[State]string{Works: "work", Waits: "wait", Late: "are late", Deadlock: "are in a deadlock", NoAnswer: "do not answer", Behind: "are in an earlier epoch", Joining: "join"}
	switch {
	case len(list) == 1 && list[0] < 0:
		return "1 node " + one[s]
	case len(list) == 1:
		return fmt.Sprintf("rank %d %s", list[0], one[s])
	case s.level() > Forming && list[0] >= 0:
		return trace.Ranks(list) + " " + many[s]
	case list[0] < 0:
		return fmt.Sprintf("%d nodes %s", len(list), many[s])
	}
	return fmt.Sprintf("%d ranks %s", len(list), many[s])
}
