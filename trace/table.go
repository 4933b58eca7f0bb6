package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes the state of a world, in one sentence as [Cluster.Sentence], and a table of the running
// operations of each rank, their progress and the ranks that they wait for. Other findings and a summary of the links follow.
// Snapshots of some ranks may be missing. Only snapshots of the newest epoch count and, of
// several of one rank, the newest.
func WriteTable(w io.Writer, snapshots []Snapshot) error {
	a := newWorld(snapshots, nil, 0)
	var b bytes.Buffer
	a.write(&b, a.findings())
	_, err := b.WriteTo(w)
	return err
}

// write writes the first of the findings, a table of the ranks, and the other findings.
func (a *world) write(w io.Writer, findings []Finding) {
	fmt.Fprintln(w, findings[0].Text)
	if len(a.ranks) == 0 {
		return
	}
	fmt.Fprintf(w, "epoch %d, %d of %d ranks heard of\n", a.epoch, len(a.ranks), a.size)
	a.table(w)
	for _, f := range findings[1:] {
		fmt.Fprintln(w, f.Text)
	}
	for _, line := range a.linked() {
		fmt.Fprintln(w, line)
	}
}

// A world has the snapshots of one epoch, by rank, and the ranks that wait for others. An end may go on without another rank, or nothing is
// known of it. All ranks that wait for no end, directly or by others, wait for each other.
type world struct {
	epoch uint64
	size  int
	ranks map[int]*Snapshot
	nodes map[int]*Node // by rank; nil without a Cluster
	hosts bool          // there are several
	all   bool          // delays of less than a second count

	in       map[int]*Operation // by rank: an operation that waits for another rank or, without one, the first
	waits    map[int][]int      // by rank: the ranks that it waits for
	waiters  map[int][]int      // by rank: the ranks that wait for it
	ends     map[int]bool
	inFlight map[int]int // by rank that waits for data in flight, the rank that has sent it
}

// newWorld returns the newest snapshots of a world, which has at least so many ranks.
func newWorld(snapshots []Snapshot, nodes map[int]*Node, size int) *world {
	a := &world{ranks: make(map[int]*Snapshot), nodes: nodes}
	for i := range snapshots {
		s := &snapshots[i]
		if s.Epoch > a.epoch || a.size == 0 {
			a.epoch, a.size = s.Epoch, s.Size
			clear(a.ranks)
		}
		if old := a.ranks[s.Rank]; s.Epoch == a.epoch && (old == nil || s.Time.After(old.Time)) {
			a.ranks[s.Rank] = s
		}
	}
	a.size = max(a.size, size)
	hosts := make(map[string]bool)
	for r := range a.ranks {
		hosts[a.host(r)] = true
	}
	for r := range a.nodes {
		hosts[a.host(r)] = true
	}
	a.hosts = len(hosts) > 1
	a.connect()
	return a
}

// running returns the running operations of a rank in this epoch.
func (a *world) running(rank int) (list []*Operation) {
	s := a.ranks[rank]
	if s == nil {
		return nil
	}
	for i := range s.Operations {
		if o := &s.Operations[i]; o.Running() && o.Epoch == a.epoch {
			list = append(list, o)
		}
	}
	return list
}

// last returns the last completed operation of a rank, or nil.
func (a *world) last(rank int) *Operation {
	ops := a.ranks[rank].Operations
	for i := range slices.Backward(ops) {
		if o := &ops[i]; !o.Running() && o.Epoch == a.epoch {
			return o
		}
	}
	return nil
}

// linked describes the links of the ranks.
func (a *world) linked() []string {
	return slices.Concat(a.connected(), a.lossy(), a.devices())
}

// lossy describes the packets over relays that were lost, if there were some.
func (a *world) lossy() []string {
	all, worst, from, to := uint64(0), uint64(0), 0, 0
	for _, rank := range slices.Sorted(maps.Keys(a.ranks)) {
		for _, l := range a.ranks[rank].Links {
			if all += l.Lost; l.Lost > worst {
				worst, from, to = l.Lost, rank, l.Rank
			}
		}
	}
	if all == 0 {
		return nil
	}
	return []string{fmt.Sprintf("packets over relays that were lost and sent again: %d; most of them, %d, went from rank %d to rank %d", all, worst, from, to)}
}

// devices describes how vectors on devices are exchanged over the links, if there were some.
func (a *world) devices() []string {
	methods := make(map[string]int)
	for _, s := range a.ranks {
		for _, l := range s.Links {
			if l.DeviceMemory != "" {
				methods[l.DeviceMemory]++
			}
		}
	}
	if len(methods) == 0 {
		return nil
	}
	var parts []string
	for _, m := range slices.Sorted(maps.Keys(methods)) {
		parts = append(parts, fmt.Sprintf("%s %d", m, methods[m]))
	}
	return []string{"memory of devices, by links: " + strings.Join(parts, ", ")}
}

// connected describes how many links the ranks have, and their purposes, if some ranks are not
// linked to all others, and the links over relays.
func (a *world) connected() []string {
	least, most, purposes := a.size, 0, make(map[string]int)
	for _, s := range a.ranks {
		least, most = min(least, len(s.Links)), max(most, len(s.Links))
		for _, l := range s.Links {
			purposes[cmp.Or(l.Purpose, "unknown")]++
		}
	}
	relayed := a.relayed()
	if least >= a.size-1 || most == 0 {
		return relayed
	}
	var parts []string
	for _, p := range slices.Sorted(maps.Keys(purposes)) {
		parts = append(parts, fmt.Sprintf("%s %d", p, purposes[p]))
	}
	of := strconv.Itoa(most)
	if least < most {
		of = fmt.Sprintf("%d to %d", least, most)
	}
	return append([]string{fmt.Sprintf("each rank is linked to %s of %d others: %s", of, a.size-1, strings.Join(parts, ", "))}, relayed...)
}

// relayed describes the links over relays, if there are some.
func (a *world) relayed() []string {
	links, hops, slowest, from := 0, 0, Link{}, 0
	for _, rank := range slices.Sorted(maps.Keys(a.ranks)) {
		for _, l := range a.ranks[rank].Links {
			if l.Hops == 0 {
				continue
			}
			links++
			hops = max(hops, l.Hops)
			if l.Delay > slowest.Delay {
				slowest, from = l, rank
			}
		}
	}
	if links == 0 {
		return nil
	}
	text := fmt.Sprintf("%d links go through relays, over up to %d hops", links, hops)
	if slowest.Delay > 0 {
		text += fmt.Sprintf("; the slowest, from rank %d to rank %d by rank %d, takes %s there and back",
			from, slowest.Rank, slowest.Relay, slowest.Delay.Round(10*time.Microsecond))
	}
	return []string{text}
}

// tableLines bounds the lines of a rank.
const tableLines = 4

func (a *world) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RANK\tNODE\tIN\tCOMM\tFOR\tROUND\tWAITS FOR")
	for _, rank := range slices.Sorted(maps.Keys(a.ranks)) {
		node := cmp.Or(a.ranks[rank].Name, fmt.Sprintf("%.8s", a.ranks[rank].Node))
		list := a.running(rank)
		if len(list) == 0 {
			fmt.Fprintf(t, "%d\t%s\t%s\n", rank, node, a.idle(rank))
		}
		for i, o := range list {
			if i == tableLines {
				fmt.Fprintf(t, "\t\tand %d more\n", len(list)-i)
				break
			}
			name, of := strconv.Itoa(rank), node
			if i > 0 {
				name, of = "", ""
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, of, o.What(), o.Comm, took(o.Duration), o.rounds(), cmp.Or(o.WaitsFor(), "-"))
		}
	}
	t.Flush()
}

// idle describes a rank without a running operation by its last one.
func (a *world) idle(rank int) string {
	o := a.last(rank)
	if o == nil {
		return "nothing by now"
	}
	since := a.ranks[rank].Time.Sub(o.Start.Add(o.Duration))
	text := fmt.Sprintf("nothing, for %s; last in %s", took(max(since, time.Microsecond)), o.What())
	if o.Outcome != OK {
		text += ", which failed: " + o.Outcome
	}
	return text
}

// missing returns the ranks without a snapshot of the newest epoch.
func (a *world) missing() (ranks []int) {
	for r := 0; len(ranks) < a.size-len(a.ranks) && r < min(a.size, worldMax); r++ {
		if a.ranks[r] == nil && (a.nodes == nil || a.nodes[r] != nil) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}
