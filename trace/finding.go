package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Finding is a state of a cluster, or of some of its ranks. Its text names the ranks, their hosts if the cluster has
// several, the operation with its sequence number, and the time.
type Finding struct {
	State string        `json:"state"`           // a constant of this package
	Ranks []int         `json:"ranks,omitempty"` // that others wait for, or that wait for each other, at most 64
	For   time.Duration `json:"for,omitempty"`   // how long others have waited for these ranks, in nanoseconds in JSON; 0: unknown
	Text  string        `json:"text"`            // one sentence without a period, of at most 1 KiB

	waiters []int
}

// States of a [Finding], besides [Mismatch], [Deadlock] and, for a minute, [Lost].
const (
	Forming  = "forming"  // nodes are missing, or connect to each other
	Silent   = "silent"   // ranks do not answer the seed
	Stalled  = "stalled"  // ranks have waited for others for a second or more
	Changing = "changing" // some ranks have not reached the newest epoch
	Late     = "late"     // all ranks work, and some are behind the others
	Working  = "working"
)

// The times after which a call is worth a look.
const (
	// StalledAfter is the time without progress after which a call, a link or a rank that others wait for is stalled, and more than
	// late. The nodes take the snapshots of one poll within less.
	StalledAfter = time.Second
	// LongAfter is the time without progress after which a call is logged, and a call that no other rank delays is reported.
	LongAfter = 10 * time.Second
)

const (
	// lateAfter is the resolution of the times of brief operations.
	lateAfter = 20 * time.Millisecond
	// lossShown is how long the loss of a rank is reported.
	lossShown = time.Minute
	// findingsMax bounds the findings, and groupsMax the calls in one.
	findingsMax, groupsMax = 16, 3
	// ranksMax bounds Finding.Ranks.
	ranksMax = 64
	// worldMax bounds the ranks that are considered.
	worldMax = 1 << 16
)

// Sentence is the state of the cluster in one sentence. If ranks wait, it has the operation, the awaited
// ranks, and their calls. It is the text of the first of [Cluster.Findings].
func (c Cluster) Sentence() string { return c.Findings()[0].Text }

// Findings returns the states of the cluster, the most important first. There is at least one finding.
func (c Cluster) Findings() []Finding {
	if !c.Formed {
		return []Finding{c.forming()}
	}
	a := c.world()
	list := a.findings()
	size := a.size
	if c.Epoch > a.epoch { // The nodes have not reached it.
		size = c.Joined
	}
	if f, ok := c.loss(size); ok && (list[0].State == Working || list[0].State == Late) {
		list = append([]Finding{f}, list...)
	}
	if c.Waiting > 0 {
		list[0].Text += fmt.Sprintf("; %s for a place", agree(nodes(c.Waiting), c.Waiting, "waits", "wait"))
	}
	return list
}

// loss describes the last node that the world has lost within lossShown.
func (c *Cluster) loss(size int) (f Finding, ok bool) {
	i := len(c.Changes) - 1
	for i >= 0 && c.Changes[i].What != Lost && c.Changes[i].What != Excluded {
		i--
	}
	if i < 0 {
		return f, false
	}
	l := &c.Changes[i]
	ago := max(c.SeedTime.Sub(l.Time), 0)
	text := agree(on(ranks([]int{l.Rank}, l.More), hostOf(l.Name)), l.More+1, "was", "were")
	return Finding{State: Lost, Ranks: []int{l.Rank}, For: ago, Text: fmt.Sprintf("%s %s %s ago: %s; the other %s",
		capital(text), l.What, span(ago), clipTo(l.Why, 200), agree("", size, "rank works", fmt.Sprint(size, " ranks work")))}, ago < lossShown
}

// About names the ranks that a rank waits for in one sentence, even if it has waited for less than a second. Nothing is known of ranks without a [Node] in c.
func (c Cluster) About(rank int) string {
	a := c.world()
	a.all = true
	for _, f := range a.findings() {
		if slices.Contains(f.waiters, rank) {
			return f.Text
		}
	}
	return a.wait([]int{rank}, nil) + " for " + span(a.groups([]int{rank})[0].time)
}

// Doing describes the call of a rank: "has been in recv from rank 0 for 14 s". It is empty if nothing is known of the rank.
func (c Cluster) Doing(rank int) string {
	a := c.world()
	g := a.groups([]int{rank})[0]
	if g.doing == "" {
		return ""
	}
	return g.String()
}

// forming describes a world that has not formed.
func (c *Cluster) forming() Finding {
	f := Finding{State: Forming, Text: fmt.Sprintf("The world forms: %d of %s", c.Joined, agree(strconv.Itoa(c.World), c.Joined, "has joined", "have joined"))}
	if c.Epoch > 0 {
		f.Text = fmt.Sprintf("The world forms: all %s have joined, and connect to each other", nodes(c.World))
		a := c.world()
		var late []int
		for _, n := range c.Nodes {
			if n.Rank >= 0 && n.Missing == Unconnected {
				late = append(late, n.Rank)
			}
		}
		if len(late) > 0 && len(late) < c.World {
			f.Ranks = some(late)
			f.Text += "; " + a.has(late) + " not connected to all others"
		}
		return f
	}
	joined := make(map[int]bool)
	for _, n := range c.Nodes {
		joined[n.Rank] = true
	}
	if len(joined) == 0 || joined[-1] || len(joined) < len(c.Nodes) { // The nodes get ranks when all have joined.
		return f
	}
	var missing []int
	for rank := range min(c.World, worldMax) {
		if !joined[rank] {
			missing = append(missing, rank)
		}
	}
	if len(missing) > 0 {
		f.Ranks = some(missing)
		f.Text += "; " + agree(ranks(missing, 0), len(missing), "is missing", "are missing")
	}
	return f
}

// A callKey names a collective.
type callKey struct {
	comm string
	seq  uint64
}

// connect finds out which ranks wait for others.
func (a *world) connect() {
	a.in, a.waits, a.waiters, a.ends, a.inFlight = make(map[int]*Operation), make(map[int][]int), make(map[int][]int), make(map[int]bool), make(map[int]int)
	for rank := range a.ranks {
		for _, o := range a.running(rank) {
			if old := a.in[rank]; old == nil || len(old.Waiting) == 0 && len(o.Waiting) > 0 {
				a.in[rank] = o
			}
			for _, r := range o.Waiting {
				if a.isInFlight(r, rank) {
					a.ends[rank], a.inFlight[rank] = true, r
				} else if r < min(a.size, worldMax) {
					a.waits[rank] = append(a.waits[rank], r)
					a.waiters[r] = append(a.waiters[r], rank)
				}
			}
			if o.Op == "call" || o.Seq == 0 && o.Peer < 0 && len(o.Waiting) == 0 {
				a.ends[rank] = true
			}
		}
	}
	for _, r := range a.missing() {
		a.ends[r] = true
	}
	for r := range a.waiters {
		if len(a.waits[r]) == 0 {
			a.ends[r] = true
		}
	}
	for _, by := range a.collectives() {
		in := slices.Concat(slices.Collect(maps.Values(by))...)
		if len(by) == 1 && a.isClosed(in) && !a.isStuck(in) {
			for _, r := range in {
				a.ends[r] = true
			}
		}
	}
}

// isInFlight reports whether data of a rank for another one is in flight. While operations make progress, it may have arrived already:
// the snapshots are not of the same instant. When they hang, the counts of both sides are final.
func (a *world) isInFlight(from, to int) bool {
	out, in := a.link(from, to), a.link(to, from)
	return out != nil && in != nil && out.Sent > in.Received
}

// flight describes data in flight that one of the ranks waits for. It may arrive at any moment, or never, as behind a firewall.
func (a *world) flight(ranks []int) string {
	for _, r := range ranks {
		if from, ok := a.inFlight[r]; ok {
			return fmt.Sprintf(", with data of rank %d for rank %d in flight", from, r)
		}
	}
	return ""
}

// link returns the link to peer in the snapshot of a rank, or nil.
func (a *world) link(rank, peer int) *Link {
	s := a.ranks[rank]
	if s == nil {
		return nil
	}
	i := slices.IndexFunc(s.Links, func(l Link) bool { return l.Rank == peer })
	if i < 0 {
		return nil
	}
	return &s.Links[i]
}

// collectives returns the ranks in running collectives, by their calls.
func (a *world) collectives() map[callKey]map[string][]int {
	calls := make(map[callKey]map[string][]int)
	for _, rank := range slices.Sorted(maps.Keys(a.ranks)) {
		for _, o := range a.running(rank) {
			if o.Seq == 0 || o.Op == "leave" { // No other rank takes part in a Leave.
				continue
			}
			k := callKey{o.Comm, o.Seq}
			if calls[k] == nil {
				calls[k] = make(map[string][]int)
			}
			calls[k][o.Call()] = append(calls[k][o.Call()], rank)
		}
	}
	return calls
}

// isClosed reports whether several ranks wait for no other. If they are in one collective, it may make progress.
func (a *world) isClosed(list []int) bool {
	in := make(map[int]bool)
	for _, r := range list {
		in[r] = true
	}
	return len(list) > 1 && !slices.ContainsFunc(list, func(r int) bool {
		return slices.ContainsFunc(a.waits[r], func(w int) bool { return !in[w] })
	})
}

// isStuck reports whether the collective of several ranks makes no progress although data for one of them is in flight.
func (a *world) isStuck(list []int) bool {
	moves := func(r int) bool { return a.in[r].Still < StalledAfter }
	_, inFlight := a.inFlight[list[0]]
	for _, r := range list {
		_, ok := a.inFlight[r]
		inFlight = inFlight || ok
	}
	return inFlight && !slices.ContainsFunc(list, moves)
}

// behind returns the ranks that wait for the given ones, directly or by others.
func (a *world) behind(list []int) (waiters []int) {
	seen := make(map[int]bool)
	for _, r := range list {
		seen[r] = true
	}
	for next := slices.Clone(list); len(next) > 0; next = next[1:] {
		for _, w := range a.waiters[next[0]] {
			if seen[w] {
				continue
			}
			seen[w] = true
			waiters = append(waiters, w)
			if !a.ends[w] {
				next = append(next, w)
			}
		}
	}
	slices.Sort(waiters)
	return waiters
}

// findings returns the delays or, without delays, that the ranks work. If all delays are below a second, only the
// longest is returned.
func (a *world) findings() (list []Finding) {
	list = slices.Concat(a.mismatches(), a.deadlocks(), a.delays())
	order := []string{Mismatch, Deadlock, Silent, Stalled, Changing, Late}
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), -cmp.Compare(a.For, b.For))
	})
	if i := slices.IndexFunc(list, func(f Finding) bool { return f.State == Late }); i >= 0 {
		list = list[:max(i, 1)]
	}
	if len(list) == 0 {
		list = []Finding{a.working()}
	}
	return list[:min(len(list), findingsMax)]
}

// mismatches finds ranks that made different collectives with the same sequence number.
func (a *world) mismatches() (list []Finding) {
	for k, by := range a.collectives() {
		if len(by) < 2 {
			continue
		}
		var groups []group
		for call, ranks := range by {
			groups = append(groups, group{doing: "been in " + clip(call), ranks: ranks})
		}
		sortGroups(groups)
		text := "The calls do not match: " + a.list(groups)
		if k.comm != "1" {
			text += " on communicator " + clip(k.comm)
		}
		list = append(list, Finding{State: Mismatch, Ranks: some(groups[len(groups)-1].ranks), Text: text})
	}
	slices.SortFunc(list, func(a, b Finding) int { return cmp.Compare(a.Text, b.Text) })
	return list
}

// deadlocks describes the ranks that wait for each other.
func (a *world) deadlocks() []Finding {
	ends := slices.Collect(maps.Keys(a.ends))
	moving := make(map[int]bool)
	for _, r := range append(a.behind(ends), ends...) {
		moving[r] = true
	}
	stuck := slices.DeleteFunc(slices.Sorted(maps.Keys(a.waits)), func(r int) bool { return moving[r] })
	if len(stuck) == 0 {
		return nil
	}
	by := a.groups(stuck)
	since := slices.MinFunc(by, func(a, b group) int { return cmp.Compare(a.time, b.time) }).time
	if since < StalledAfter && !a.all {
		return nil
	}
	f := Finding{State: Deadlock, Ranks: some(stuck), For: since, waiters: stuck}
	switch len(by) {
	case 1:
		whom := "each other"
		if len(stuck) == 1 {
			whom = "itself"
		}
		f.Text = fmt.Sprintf("%s waited for %s %s for %s: a deadlock", capital(a.has(stuck)), whom, by[0].where()+by[0].at(), span(since))
	case 2:
		f.Text = fmt.Sprintf("%s, which %s: a deadlock", a.wait(by[0].ranks, by[1].ranks), by[1])
	default:
		f.Text = fmt.Sprintf("%s waited for each other for %s, %s: a deadlock", capital(a.has(stuck)), span(since), a.list(by))
	}
	return []Finding{f}
}

// delays describes the ranks that others wait for and that wait for no other, and those that do not answer.
func (a *world) delays() (list []Finding) {
	by := a.groups(slices.Sorted(maps.Keys(a.ends)))
	for i := range by[:min(len(by), findingsMax)] {
		e := &by[i]
		waiters := a.behind(e.ranks)
		f := Finding{State: Stalled, Ranks: some(e.ranks), For: a.lag(e.ranks), waiters: waiters}
		isSilent := a.ranks[e.ranks[0]] == nil
		if n := a.nodes[e.ranks[0]]; isSilent && n != nil && n.Snapshot != nil {
			f.State = Changing
		} else if isSilent {
			f.State = Silent
		}
		switch {
		case isSilent && len(waiters) == 0:
			f.Text = capital(fmt.Sprintf("%s %s", a.who(e.ranks), e))
		case len(waiters) == 0:
			continue
		case isSilent || f.For >= StalledAfter || a.all:
			if f.Text = a.wait(waiters, e.ranks); e.doing != "" {
				f.Text += ", which " + e.String()
			}
			f.Text += a.flight(e.ranks)
		default:
			o := a.behindIn(e.ranks)
			if o == nil || f.For < lateAfter {
				continue
			}
			f.State, f.Text = Late, fmt.Sprintf("All %d ranks work; %s %s behind in %s", a.size, agree(a.who(e.ranks), len(e.ranks), "is", "are"), span(f.For), o.short())
		}
		list = append(list, f)
	}
	return list
}

// lag returns how long other ranks have waited for the given ones, at the time of their snapshots.
func (a *world) lag(ends []int) (longest time.Duration) {
	for _, r := range ends {
		for _, w := range a.waiters[r] {
			d := a.in[w].Duration
			if here, there := a.taken(w), a.taken(r); !here.IsZero() && !there.IsZero() {
				d -= here.Sub(there)
			}
			longest = max(longest, d)
		}
	}
	return longest
}

// taken returns when a rank has taken its snapshot, by the clock of the seed; zero: unknown.
func (a *world) taken(rank int) time.Time {
	s, n := a.ranks[rank], a.nodes[rank]
	if s == nil || n == nil || n.OffsetError == 0 {
		return time.Time{}
	}
	return s.Time.Add(-n.Offset)
}

// behindIn returns a collective of a rank that waits for one of the given ranks, which have not begun it.
func (a *world) behindIn(ends []int) *Operation {
	for _, r := range ends {
		for _, w := range a.waiters[r] {
			o := a.in[w]
			if s := a.ranks[r]; o.Seq > 0 && !slices.ContainsFunc(s.Operations, func(p Operation) bool { return p.Comm == o.Comm && p.Seq >= o.Seq }) {
				return o
			}
		}
	}
	return nil
}

// working describes a world without delays.
func (a *world) working() Finding {
	f := Finding{State: Working, Text: fmt.Sprintf("All %d ranks work", a.size)}
	switch a.size {
	case 0:
		f.Text = "No rank has joined"
		return f
	case 1:
		f.Text = "The only rank works"
	}
	var long []int
	for rank, o := range a.in {
		if len(o.Waiting) > 0 && o.Duration >= LongAfter {
			long = append(long, rank)
		}
	}
	if slices.Sort(long); len(long) > 0 {
		by := a.groups(long)[0]
		f.Text += fmt.Sprintf("; %s %s", a.who(by.ranks), by) + a.flight(long)
	}
	if len(a.in) > 0 {
		return f
	}
	var last *Operation
	var ended time.Duration
	for rank, s := range a.ranks {
		if o := a.last(rank); o != nil {
			if d := max(0, s.Time.Sub(o.Start.Add(o.Duration))); last == nil || d < ended {
				last, ended = o, d
			}
		}
	}
	switch {
	case last == nil:
		f.Text += ", and have made no call"
	case ended >= StalledAfter:
		f.Text += fmt.Sprintf(", and have been in no call for %s; the last was %s", span(ended), last.short())
	}
	if a.size == 1 {
		f.Text = strings.ReplaceAll(f.Text, "have", "has")
	}
	return f
}
