// Package timeline writes the recent operations of ranks as a trace file, which https://ui.perfetto.dev and chrome://tracing show as
// one timeline for all ranks. "nexar trace" writes such files of a whole cluster; a program can write one of its own rank:
//
//	w := timeline.NewWriter(file)
//	w.AddSnapshots(comm.Trace())
//	err := w.Close()
//
// A rank is a process of the timeline and a communicator a thread of it; operations that overlap are on further threads. Inside of a
// collective that has waited for a rank that began it later is a slice "waits for rank 3". Arrows lead from each send to its receive.
// Times are those of one clock, that of the seed: the name of each rank says how far its own clock may differ from it after the
// correction. Details of an operation (algorithm, rounds, bytes, outcome) are its arguments.
//
// A collective of more than 128 ranks takes about 80 bytes for each of them: only its lowest rank, and ranks that differ from it, have details,
// and in place of the waits of all ranks the last one has a slice "511 ranks wait for all_reduce #9" on a thread of its own.
//
// The format is JSON as the "Trace Event Format" document of the Chromium project describes it.
package timeline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// A Writer writes a trace file as it gets snapshots, and keeps only operations that later snapshots may complete. Methods must not be called
// concurrently.
type Writer struct {
	out     *bufio.Writer
	begin   time.Time // time 0 of the file
	any     bool      // an event has been written
	written int       // operations
	line    []byte

	nodes  map[string]*node  // by NodeID
	clocks map[string]*clock // by host or, if it has several, by NodeID
	list   []*node           // in the order of their appearance; the process of a node is its place in it, from 1
	groups map[groupKey]*group
	adds   uint64
}

// A node is the state of the Writer for a node.
type node struct {
	process int
	rank    int
	epoch   uint64              // of the rank
	named   string              // as the file names it now
	threads map[string][]thread // by name, with one element for each operation that may overlap with others
	tids    int
	seen    map[opKey]bool    // the completed operations of the last snapshot
	running []trace.Operation // in the last snapshot
	clock   *clock
	at      time.Time // of the last snapshot, by the clock of the seed
	counts  map[string]*count
}

// A clock is the clock of the nodes of a host. Its measurement with the smallest error counts.
type clock struct {
	ahead time.Duration // of the clock of the seed
	blur  time.Duration // the error of ahead
}

// A count has the collectives of a communicator that a node has reported.
type count struct{ first, last, known uint64 }

// A thread is a line of the timeline. Its slices must not overlap.
type thread struct {
	tid   int
	until time.Time
}

// An opKey identifies an operation of a node.
type opKey struct {
	comm, op, function string
	seq, order         uint64
	peer               int
	start              time.Time
}

// A groupKey identifies a collective of all its ranks.
type groupKey struct {
	comm string
	seq  uint64
}

// A group has the operations of a collective that are not written yet, by process.
type group struct {
	ops   map[int]trace.Operation
	added uint64 // Writer.adds of the first operation
}

// NewWriter returns a Writer to w, which it does not close.
func NewWriter(w io.Writer) *Writer {
	return &Writer{out: bufio.NewWriterSize(w, 64<<10), nodes: make(map[string]*node), clocks: make(map[string]*clock), groups: make(map[groupKey]*group)}
}

// Add writes the operations of a cluster that have ended since the last Add.
func (w *Writer) Add(c trace.Cluster) error {
	for _, n := range c.Nodes {
		if n.Snapshot != nil {
			w.measure(n.Snapshot, clock{n.Offset, n.OffsetError})
		}
	}
	for _, n := range c.Nodes {
		if n.Snapshot != nil {
			w.add(n.Snapshot)
		}
	}
	return w.settle(false)
}

// AddSnapshots is [Writer.Add] for snapshots of ranks with clocks that agree.
func (w *Writer) AddSnapshots(snapshots ...trace.Snapshot) error {
	for i := range snapshots {
		w.node(&snapshots[i]).clock = new(clock)
		w.add(&snapshots[i])
	}
	return w.settle(false)
}

// node returns the node of a snapshot.
func (w *Writer) node(s *trace.Snapshot) *node {
	n := w.nodes[s.Node]
	if n == nil {
		n = &node{process: len(w.list) + 1, threads: make(map[string][]thread), counts: make(map[string]*count)}
		w.nodes[s.Node], w.list = n, append(w.list, n)
	}
	return n
}

// measure notes a measurement of the clock of a node. Nodes of one host share their clock; hosts with the same name have clocks that contradict each other.
func (w *Writer) measure(s *trace.Snapshot, now clock) {
	n := w.node(s)
	if n.clock == nil {
		host, _, _ := strings.Cut(s.Name, ":")
		n.clock = w.clocks[host]
		if n.clock == nil || !n.clock.agrees(now) {
			n.clock = &clock{now.ahead, now.blur}
			w.clocks[host] = n.clock
		}
	}
	if now.blur < n.clock.blur {
		*n.clock = now
	}
}

// agrees reports whether two measurements can be of the same clock.
func (c *clock) agrees(d clock) bool { return (c.ahead - d.ahead).Abs() <= c.blur+d.blur }

// apart is the error of the time between a moment of a node and one of another.
func apart(a, b *node) time.Duration {
	if a.clock == b.clock {
		return 0
	}
	return a.clock.blur + b.clock.blur
}

// add notes the new operations of a snapshot.
func (w *Writer) add(s *trace.Snapshot) {
	n := w.node(s)
	shift := -n.clock.ahead
	n.at = s.Time.Add(shift)
	if w.begin.IsZero() {
		w.begin = n.at
		for i := range s.Operations {
			if start := s.Operations[i].Start.Add(shift); start.Before(w.begin) {
				w.begin = start
			}
		}
	}
	w.name(s, n)
	seen := make(map[opKey]bool, len(s.Operations))
	n.running = n.running[:0]
	for _, o := range s.Operations {
		k := opKey{o.Comm, o.Op, o.Function, o.Seq, o.Order, o.Peer, o.Start}
		o.Start = o.Start.Add(shift)
		if early := w.begin.Sub(o.Start); early > 0 {
			o.Start, o.Duration = w.begin, max(0, o.Duration-early)
		}
		if o.Running() {
			n.running = append(n.running, o)
			continue
		}
		if seen[k] = true; !n.seen[k] {
			w.note(n, o)
		}
	}
	n.seen = seen
}

// note keeps a collective until those of the other ranks are known, and writes other operations.
func (w *Writer) note(n *node, o trace.Operation) {
	if o.Seq == 0 {
		w.slice(n, &o, n.end(&o), nil, true)
		return
	}
	c := n.counts[o.Comm]
	if c == nil {
		c = &count{first: o.Seq}
		n.counts[o.Comm] = c
	}
	c.first, c.last, c.known = min(c.first, o.Seq), max(c.last, o.Seq), c.known+1
	k := groupKey{o.Comm, o.Seq}
	g := w.groups[k]
	if g == nil {
		g = &group{make(map[int]trace.Operation), w.adds}
		w.groups[k] = g
	}
	g.ops[n.process] = o
}

// end returns when an operation ended or, if it is running, when it was reported.
func (n *node) end(o *trace.Operation) time.Time {
	if o.Running() {
		return n.at
	}
	return o.Start.Add(o.Duration)
}

// settle writes the collectives that no other rank is likely to report any more, or all.
func (w *Writer) settle(all bool) error {
	w.adds++
	keys := slices.SortedFunc(maps.Keys(w.groups), func(a, b groupKey) int { return cmp.Or(cmp.Compare(a.comm, b.comm), cmp.Compare(a.seq, b.seq)) })
	for _, k := range keys {
		if g := w.groups[k]; all || w.adds-g.added > 2 {
			w.collective(g)
			delete(w.groups, k)
		}
	}
	// An error of the writer below stays until Flush.
	return w.out.Flush()
}

// A wait of an operation lasts until another rank begins it.
type wait struct {
	on    *node
	until time.Time
}

// collective writes the operations of a group. One of many ranks is brief.
func (w *Writer) collective(g *group) {
	var last wait
	processes := slices.Sorted(maps.Keys(g.ops))
	for _, p := range processes {
		if o := g.ops[p]; last.on == nil || o.Start.After(last.until) {
			last = wait{w.list[p-1], o.Start}
		}
	}
	first, late := g.ops[processes[0]], g.ops[last.on.process]
	isBrief := len(processes) > detailedRanks
	begin, waiting := last.until, 0
	for i, p := range processes {
		o, n := g.ops[p], w.list[p-1]
		end, waited := n.end(&o), &wait{last.on, last.until}
		if waited.until.After(end) {
			waited.until = end
		}
		blur := apart(n, last.on) + shortest
		if o.Approximate || late.Approximate {
			blur += approximation
		}
		if n == last.on || waited.until.Sub(o.Start) <= blur {
			waited = nil
		} else if waiting++; o.Start.Before(begin) {
			begin = o.Start
		}
		if isBrief {
			waited = nil
		}
		w.slice(n, &o, end, waited, !isBrief || i == 0 || differs(&o, &first))
	}
	if isBrief && waiting > 0 {
		w.awaited(last.on, title(&late), begin, last.until, waiting)
	}
}

// differs reports whether an operation needs details that another one of its collective does not have.
func differs(a, b *trace.Operation) bool {
	return a.Outcome != trace.OK || a.Approximate || a.Op != b.Op || a.Type != b.Type || a.Length != b.Length || a.Reduce != b.Reduce ||
		a.Root != b.Root || a.Plan != b.Plan || a.Rounds != b.Rounds || a.Purpose != b.Purpose
}

const (
	// detailedRanks is the largest number of ranks that have details and waits of a collective.
	detailedRanks = 128
	// shortest is the shortest wait that is shown, if the clocks are exact.
	shortest = 20 * time.Microsecond
	// approximation is the error of approximate times.
	approximation = 20 * time.Millisecond
	// thinnest is the least duration of a slice, and gap the least time between two of a thread: more than errors of rounding. An end of an arrow, which
	// belongs to the slice that is open at its time, is half of thinnest inside: a message takes longer than thinnest.
	thinnest, gap = 100 * time.Nanosecond, 10 * time.Nanosecond
)

// Close writes the rest: collectives that some ranks have not reported, and operations that run. It does not close the writer below. Only Summary may
// be called after it.
func (w *Writer) Close() error {
	for _, n := range w.list {
		for _, o := range n.running {
			w.note(n, o)
		}
		n.running = nil
	}
	if err := w.settle(true); err != nil {
		return err
	}
	if !w.any {
		fmt.Fprint(w.out, `{"traceEvents":[`)
	}
	fmt.Fprintf(w.out, "\n],%q:%q,%q:{%q:%q,%q:%q", "displayTimeUnit", "ns", "otherData", "begin", w.begin.Format(time.RFC3339Nano), "clock", w.clock())
	if lost := w.lost(); lost > 0 {
		fmt.Fprintf(w.out, ",%q:%d", "collectives_not_recorded", lost)
	}
	fmt.Fprint(w.out, "}}\n")
	return w.out.Flush()
}

// Summary describes the file after Close: "4 ranks, 1200 operations".
func (w *Writer) Summary() string {
	text := fmt.Sprintf("%d ranks, %d operations", len(w.list), w.written)
	if lost := w.lost(); lost > 0 {
		text += fmt.Sprintf(", and %d collectives in between were not recorded", lost)
	}
	return text
}

// clock describes the error of the clock of the file.
func (w *Writer) clock() string {
	var worst time.Duration
	for _, n := range w.list {
		worst = max(worst, n.clock.blur)
	}
	if worst == 0 {
		return "as the ranks read it"
	}
	return fmt.Sprintf("that of the seed, within %v", worst.Round(time.Microsecond))
}

// lost returns the number of collectives between the first and the last of each rank that no snapshot had.
func (w *Writer) lost() (lost uint64) {
	for _, n := range w.list {
		for _, c := range n.counts {
			lost += c.last - c.first + 1 - min(c.known, c.last-c.first+1)
		}
	}
	return lost
}
