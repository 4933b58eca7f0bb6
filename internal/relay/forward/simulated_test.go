package forward_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
)

// A simulatedNode is one node of a [simulated] network.
type simulatedNode struct {
	Forward *forward.Node
	// Deliver gets the frames for this node and the neighbor that they come from.
	Deliver func(f forward.Frame, from int)
	Dead    bool
	// HeldMax is the largest number of bytes in queues, at any time.
	HeldMax int

	writing map[int]bool // a write to the neighbor is in progress
}

// A simulated network has nodes that forward frames over links with latency and bandwidth, in simulated time. The same seed gives the same events.
type simulated struct {
	Now   time.Time
	Nodes []*simulatedNode
	Rand  *rand.Rand
	// Latency and Bandwidth, in bytes per microsecond, are those of all links.
	Latency   time.Duration
	Bandwidth int

	graph  relaytest.Graph // of living links
	links  map[[2]int]int  // number of a living directed link
	made   int
	events []event // in the order in which they run
}

// newSimulated returns a network of nodes with the hop limit.
func newSimulated(seed uint64, graph relaytest.Graph, hopLimit int) *simulated {
	w := &simulated{
		Now: time.Unix(1000, 0), Rand: rand.New(rand.NewPCG(seed, 1)), Latency: 50 * time.Microsecond, Bandwidth: 1000,
		links: make(map[[2]int]int), graph: make(relaytest.Graph, len(graph)),
	}
	for i := range graph {
		f, err := forward.New(forward.Config{Self: relaytest.ID(i), Routes: routes{w, i}, HopLimit: hopLimit})
		if err != nil {
			panic(err)
		}
		w.Nodes = append(w.Nodes, &simulatedNode{Forward: f, writing: make(map[int]bool)})
	}
	for i, peers := range graph {
		for _, j := range peers {
			if i < j {
				w.Link(i, j)
			}
		}
	}
	return w
}

// routes are the next hops of one node over living links.
type routes struct {
	network *simulated
	self    int
}

// NextHops implements [forward.Routes].
func (r routes) NextHops(destination membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	return r.network.graph.NextHops(r.self, destination, hops)
}

// An event is a function that runs at a time.
type event struct {
	at  time.Time
	run func()
}

// At runs a function after a delay.
func (w *simulated) At(delay time.Duration, run func()) {
	at := w.Now.Add(delay)
	i := sort.Search(len(w.events), func(i int) bool { return w.events[i].at.After(at) })
	w.events = slices.Insert(w.events, i, event{at, run})
}

// Run carries out events until none is left, at most for a simulated time. It returns false if events are left.
func (w *simulated) Run(limit time.Duration) bool {
	end := w.Now.Add(limit)
	for len(w.events) > 0 {
		if w.events[0].at.After(end) {
			w.Now = end
			return false
		}
		e := w.events[0]
		w.events = slices.Delete(w.events, 0, 1)
		w.Now = e.at
		e.run()
	}
	return true
}

// Send sends a frame of node i, and reports what becomes of it there.
func (w *simulated) Send(i int, f forward.Frame) forward.Outcome {
	n := w.Nodes[i]
	o, wake := n.Forward.Send(w.Now, f, nil)
	w.queued(i, o, wake)
	return o
}

// queued writes to a neighbor for which a frame waits.
func (w *simulated) queued(i int, o forward.Outcome, wake membership.NodeID) {
	n := w.Nodes[i]
	n.HeldMax = max(n.HeldMax, n.Forward.Held())
	if o == forward.Queued {
		w.write(i, relaytest.Index(wake))
	}
}

// write writes the next frame of node i to node j, unless a write is in progress.
func (w *simulated) write(i, j int) {
	n := w.Nodes[i]
	link := w.links[[2]int{i, j}]
	if n.writing[j] || n.Dead || link == 0 {
		return
	}
	f, ok := n.Forward.Next(w.Now, relaytest.ID(j))
	if !ok {
		return
	}
	n.writing[j] = true
	busy := time.Duration(forward.HeaderSize+len(f.Payload)) * time.Microsecond / time.Duration(w.Bandwidth)
	w.At(busy+w.Latency, func() { w.arrive(i, j, link, f) })
	w.At(busy, func() {
		n.writing[j] = false
		w.write(i, j)
	})
}

// arrive passes a frame of node i to node j, encoded and decoded.
func (w *simulated) arrive(i, j, link int, sent forward.Frame) {
	n := w.Nodes[j]
	if w.links[[2]int{i, j}] != link || n.Dead {
		return
	}
	f, size, err := forward.ParseHeader(sent.AppendHeader(nil))
	if err != nil || size != len(sent.Payload) {
		panic(fmt.Sprint("header of a frame: ", size, err))
	}
	f.Payload = append(n.Forward.Payload(size)[:0], sent.Payload...)
	w.Nodes[i].Forward.Free(sent.Payload)
	o, wake, err := n.Forward.Receive(w.Now, relaytest.ID(i), f)
	if err != nil {
		panic(err)
	}
	w.queued(j, o, wake)
	if o == forward.Delivered && n.Deliver != nil {
		n.Deliver(f, i)
	}
}

// Kill ends node i. Its neighbors notice at once, and the routes change.
func (w *simulated) Kill(i int) {
	w.Nodes[i].Dead = true
	for _, j := range slices.Clone(w.graph[i]) {
		w.Cut(i, j)
	}
}

// Cut ends the link between two nodes.
func (w *simulated) Cut(i, j int) {
	delete(w.links, [2]int{i, j})
	delete(w.links, [2]int{j, i})
	w.graph.Unlink(i, j)
	w.Nodes[i].Forward.NeighborDown(relaytest.ID(j))
	w.Nodes[j].Forward.NeighborDown(relaytest.ID(i))
}

// Link links two nodes.
func (w *simulated) Link(i, j int) {
	for _, link := range [][2]int{{i, j}, {j, i}} {
		w.made++
		w.links[link] = w.made
	}
	w.graph.Link(i, j)
	w.Nodes[i].Forward.NeighborUp(relaytest.ID(j))
	w.Nodes[j].Forward.NeighborUp(relaytest.ID(i))
}
