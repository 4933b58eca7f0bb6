package metrics

import (
	"slices"
	"strings"

	"github.com/nexar-go/nexar/trace"
)

// totals keeps sums over snapshots: the bytes of links, also of ended ones, and the waiting times for ranks, also in earlier views.
// Otherwise the sums that Prometheus sees would decrease, which it takes for a restart.
type totals struct {
	nodes map[string]*nodeTotals   // by ID
	names [namesOf]map[string]bool // label values that were seen
}

type nodeTotals struct {
	awaited float64 // seconds
	sums    map[path]*linkSum

	// As they were at the last poll that had them, in the epoch. In another one ranks are other nodes.
	isKnown bool
	epoch   uint64
	links   map[int]trace.Link // by rank
	waits   map[call][]trace.RankTime
}

type path struct{ transport, class string }

type call struct {
	op       string
	commSize int
}

type linkSum struct {
	links                               int    // now
	unacknowledged                      uint64 // now
	sent, received, connections, stalls uint64
}

func newTotals() *totals {
	t := &totals{nodes: make(map[string]*nodeTotals)}
	for i := range t.names {
		t.names[i] = make(map[string]bool)
	}
	return t
}

// The kinds of label values that other nodes choose.
const (
	operations = iota
	algorithms
	transports
	classes
	namesOf
)

const (
	// pairsMax is the maximum number of pairs of an operation and a size of communicators of a node: those with the most calls.
	pairsMax = 24
	// namesMax is the maximum number of values of a kind, and pathsMax that of pairs of a transport and a class of a node. Further ones are other.
	namesMax = 64
	pathsMax = 16
	other    = "other"
)

// name returns a label value, or "other" if there are too many.
func (t *totals) name(kind int, value string) string {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if seen := t.names[kind]; !seen[value] {
		if len(seen) >= namesMax {
			return other
		}
		seen[value] = true
	}
	return value
}

// update adds the changes since the last poll, and forgets nodes that are not in the cluster.
func (t *totals) update(c *trace.Cluster) {
	nodes, ranks := make(map[string]*nodeTotals), make(map[int]*nodeTotals)
	for i := range c.Nodes {
		id := c.Nodes[i].Node
		if nodes[id] = t.nodes[id]; nodes[id] == nil {
			nodes[id] = &nodeTotals{sums: make(map[path]*linkSum)}
		}
		ranks[c.Nodes[i].Rank] = nodes[id]
	}
	t.nodes = nodes
	for i := range c.Nodes {
		if s := c.Nodes[i].Snapshot; s != nil {
			n := nodes[c.Nodes[i].Node] // s.Node may be another one in the answer of a query of the program.
			t.addLinks(n, s)
			n.addWaits(s, c.Epoch, ranks)
			n.isKnown, n.epoch = true, s.Epoch
		}
	}
}

// addLinks adds the changes of the links of a node since the last poll. In a new epoch it adds nothing: the ranks of links may have changed.
func (t *totals) addLinks(n *nodeTotals, s *trace.Snapshot) {
	for _, sum := range n.sums {
		sum.links, sum.unacknowledged = 0, 0
	}
	isNew := n.isKnown && n.epoch != s.Epoch
	if isNew || n.links == nil {
		n.links = make(map[int]trace.Link)
	}
	for _, l := range s.Links {
		p := path{t.name(transports, l.Transport), t.name(classes, l.Class)}
		if n.sums[p] == nil && len(n.sums) >= pathsMax {
			p = path{other, other}
		}
		if n.sums[p] == nil {
			n.sums[p] = new(linkSum)
		}
		sum, last := n.sums[p], n.links[l.Rank]
		n.links[l.Rank] = l
		sum.links++
		sum.unacknowledged += l.Unacknowledged
		if isNew {
			continue
		}
		if l.Sent < last.Sent || l.Received < last.Received || l.Connections < last.Connections || l.Stalls < last.Stalls {
			last = trace.Link{} // Another link has replaced it.
		}
		sum.sent += l.Sent - last.Sent
		sum.received += l.Received - last.Received
		sum.connections += uint64(l.Connections - last.Connections)
		sum.stalls += l.Stalls - last.Stalls
	}
}

// addWaits adds the waiting times of the calls of a node since the last poll. In a new epoch the communicators are new.
func (n *nodeTotals) addWaits(s *trace.Snapshot, epoch uint64, ranks map[int]*nodeTotals) {
	if n.epoch != s.Epoch {
		n.waits = nil
	}
	before := n.waits
	n.waits = make(map[call][]trace.RankTime)
	for i := range s.Counters {
		k := &s.Counters[i]
		key := call{k.Op, k.Ranks}
		n.waits[key] = k.WaitedFor
		for _, w := range k.WaitedFor {
			last := timeOf(before[key], w.Rank)
			if of := ranks[w.Rank]; of != nil && s.Epoch == epoch && w.Time > last.Time {
				of.awaited += (w.Time - last.Time).Seconds()
			}
		}
	}
}

// timeOf returns the time of a rank at the last poll. A rank that was not among the longest may have had the shortest time of these.
func timeOf(list []trace.RankTime, rank int) (t trace.RankTime) {
	if i := slices.IndexFunc(list, func(t trace.RankTime) bool { return t.Rank == rank }); i >= 0 {
		return list[i]
	}
	if len(list) == trace.WaitedForMax {
		return list[len(list)-1]
	}
	return t
}
