// Package relaytest simulates networks of relays for tests. A [Network] has nodes that forward
// frames over links with latency and bandwidth, in simulated time. The same seed gives the same
// events. Nodes die, links are cut, and nodes can be hostile.
package relaytest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
)

// Reserve is the number of bytes that a hostile node can send to a neighbor beyond the frames that it forwards, after it has
// dropped as many.
const Reserve = 32 << 10

// A Graph has the neighbors of each node.
type Graph [][]int

// Ring returns a ring of n nodes.
func Ring(n int) Graph {
	g := make(Graph, n)
	for i := range n {
		g[i] = []int{(i + 1) % n, (i + n - 1) % n}
	}
	return g
}

// Random returns a connected graph of n nodes: a random tree and more random links.
func Random(rng *rand.Rand, n, more int) Graph {
	g := make(Graph, n)
	link := func(a, b int) {
		if a != b && !slices.Contains(g[a], b) {
			g[a], g[b] = append(g[a], b), append(g[b], a)
		}
	}
	for i := 1; i < n; i++ {
		link(i, rng.IntN(i))
	}
	for range more {
		link(rng.IntN(n), rng.IntN(n))
	}
	return g
}

// distances returns the numbers of hops from a node, -1 to nodes that cannot be reached.
func (g Graph) distances(from int) []int {
	d := make([]int, len(g))
	for i := range d {
		d[i] = -1
	}
	d[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range g[queue[0]] {
			if d[to] < 0 {
				d[to] = d[queue[0]] + 1
				queue = append(queue, to)
			}
		}
	}
	return d
}

// nextHops appends the neighbors of a node, nearest first, by their distances from the destination.
func (g Graph) nextHops(from int, distance []int, hops []membership.NodeID) []membership.NodeID {
	peers := slices.DeleteFunc(slices.Clone(g[from]), func(i int) bool { return distance[i] < 0 })
	slices.SortStableFunc(peers, func(a, b int) int { return distance[a] - distance[b] })
	for _, i := range peers {
		hops = append(hops, ID(i))
	}
	return hops
}

// NextHops appends the next hops from a node, as [forward.Routes] does.
func (g Graph) NextHops(from int, destination membership.NodeID, hops []membership.NodeID) []membership.NodeID {
	return g.nextHops(from, g.distances(Index(destination)), hops)
}

// Clone returns a copy of the graph.
func (g Graph) Clone() Graph {
	c := make(Graph, len(g))
	for i, peers := range g {
		c[i] = slices.Clone(peers)
	}
	return c
}

// unlink removes the link between two nodes.
func (g Graph) unlink(i, j int) {
	g[i] = slices.DeleteFunc(g[i], func(k int) bool { return k == j })
	g[j] = slices.DeleteFunc(g[j], func(k int) bool { return k == i })
}

// Remove removes the links of a node.
func (g Graph) Remove(i int) {
	for _, j := range slices.Clone(g[i]) {
		g.unlink(i, j)
	}
}

// Diameter returns the largest number of hops between two nodes.
func (g Graph) Diameter() (most int) {
	for i := range g {
		most = max(most, slices.Max(g.distances(i)))
	}
	return most
}

// ID returns the NodeID of node i.
func ID(i int) (id membership.NodeID) {
	binary.BigEndian.PutUint32(id[:], uint32(i)+1)
	return id
}

// Index returns the number of the node with an ID.
func Index(id membership.NodeID) int { return int(binary.BigEndian.Uint32(id[:])) - 1 }

// A Node is one node of a [Network].
type Node struct {
	Forward *forward.Node
	// Deliver gets the frames for this node and the neighbor that they come from. It owns the payload.
	Deliver func(f forward.Frame, from int)
	// Dropped gets the frames that were lost at this node.
	Dropped func(d forward.Drop)
	// Tamper, if not nil, makes the node hostile: it returns the frames that are sent to a neighbor
	// instead of f, all with the Hops of f. Beyond f, these may cost as much as it has dropped of frames with these Hops, and
	// at most Reserve.
	Tamper func(f forward.Frame, to int) []forward.Frame
	// Silent makes the node give no credit.
	Silent bool
	// Rerouted is called when the routes have changed.
	Rerouted func()
	Dead     bool
	// HeldMax is the largest number of bytes in buffers, at any time.
	HeldMax int

	saved   map[[2]int]int // credit of a hostile node at each neighbor, for each class, that its forward.Node has counted as used
	writing map[int]bool   // a write to the neighbor is in progress
}

// A Network is a simulated network.
type Network struct {
	Now   time.Time
	Nodes []*Node
	Rand  *rand.Rand
	// Latency and Bandwidth, in bytes per microsecond, are those of all links.
	Latency   time.Duration
	Bandwidth int

	graph    Graph // of living links
	distance [][]int
	links    map[[2]int]int // generation of a living directed link
	made     int
	events   []event     // in the order in which they run
	tick     []time.Time // of each node
}

// New returns a network. cfg is the configuration of all nodes, except for Self and Routes. prepare
// is called with each node before it has neighbors.
func New(seed uint64, graph Graph, cfg forward.Config, prepare ...func(*forward.Node)) *Network {
	w := &Network{
		Now: time.Unix(1000, 0), Rand: rand.New(rand.NewPCG(seed, 1)), Latency: 50 * time.Microsecond, Bandwidth: 1000,
		links: make(map[[2]int]int), graph: graph.Clone(), tick: make([]time.Time, len(graph)),
	}
	for i := range graph {
		own := cfg
		own.Self, own.Routes = ID(i), routes{w, i}
		f, err := forward.New(own)
		if err != nil {
			panic(err)
		}
		for _, p := range prepare {
			p(f)
		}
		w.Nodes = append(w.Nodes, &Node{Forward: f, writing: make(map[int]bool), saved: make(map[[2]int]int)})
	}
	w.measure()
	for i, peers := range graph {
		for _, j := range peers {
			w.made++
			w.links[[2]int{i, j}] = w.made
		}
	}
	for i, peers := range graph {
		for _, j := range peers {
			w.carryOut(i, w.Nodes[i].Forward.NeighborUp(w.Now, ID(j)))
		}
	}
	return w
}

// routes are the next hops of one node over living links.
type routes struct {
	network *Network
	self    int
}

// NextHops implements [forward.Routes].
func (r routes) NextHops(destination membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	return r.network.graph.nextHops(r.self, r.network.distance[Index(destination)], hops)
}

func (w *Network) measure() {
	w.distance = w.distance[:0]
	for i := range w.graph {
		w.distance = append(w.distance, w.graph.distances(i))
	}
}

// An event is a function that runs at a time.
type event struct {
	at  time.Time
	run func()
}

// At runs a function after a delay.
func (w *Network) At(delay time.Duration, run func()) {
	at := w.Now.Add(delay)
	i := sort.Search(len(w.events), func(i int) bool { return w.events[i].at.After(at) })
	w.events = slices.Insert(w.events, i, event{at, run})
}

// Run carries out events until none is left, at most for a simulated time. It returns false if
// events are left.
func (w *Network) Run(limit time.Duration) bool {
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

// Send sends a frame of node i.
func (w *Network) Send(i int, f forward.Frame) {
	if n := w.Nodes[i]; !n.Dead {
		w.carryOut(i, n.Forward.Send(w.Now, f))
	}
}

// carryOut carries out the effects of an event at node i.
func (w *Network) carryOut(i int, e *forward.Effects) {
	n := w.Nodes[i]
	n.HeldMax = max(n.HeldMax, n.Forward.Held())
	wake, drops := slices.Clone(e.Wake), slices.Clone(e.Drops)
	if n.Dropped != nil {
		for _, d := range drops {
			n.Dropped(d)
		}
	}
	for _, id := range wake {
		w.write(i, Index(id))
	}
	w.arm(i)
}

// arm schedules the next Tick of node i.
func (w *Network) arm(i int) {
	at := w.Nodes[i].Forward.Deadline()
	if at.IsZero() || at.Equal(w.tick[i]) {
		return
	}
	w.tick[i] = at
	w.At(at.Sub(w.Now), func() {
		if n := w.Nodes[i]; !n.Dead && w.tick[i].Equal(at) {
			w.tick[i] = time.Time{}
			w.carryOut(i, n.Forward.Tick(w.Now))
		}
	})
}

// write writes the next output of node i to node j, unless a write is in progress.
func (w *Network) write(i, j int) {
	n := w.Nodes[i]
	link := w.links[[2]int{i, j}]
	if n.writing[j] || n.Dead || link == 0 {
		return
	}
	out, ok, effects := n.Forward.Next(w.Now, ID(j))
	if !ok {
		w.carryOut(i, effects)
		return
	}
	n.writing[j] = true
	frames := []forward.Frame{out.Frame}
	if out.Credit.Bytes == 0 && n.Tamper != nil {
		frames = n.Tamper(out.Frame, j)
		w.balance(i, j, &out.Frame, frames)
	}
	size := forward.CreditSize
	if out.Credit.Bytes == 0 {
		size = forward.HeaderSize + len(out.Frame.Payload)
	}
	busy := time.Duration(size) * time.Microsecond / time.Duration(w.Bandwidth)
	w.At(busy+w.Latency, func() { w.arrive(i, j, link, out.Credit, frames) })
	w.At(busy, func() {
		n.writing[j] = false
		w.write(i, j)
	})
	w.carryOut(i, effects)
}

// balance gives a hostile node the credit back that frames would have cost that it has not sent, except for
// Reserve bytes: with these it can send others later.
func (w *Network) balance(i, j int, f *forward.Frame, frames []forward.Frame) {
	n, at := w.Nodes[i], [2]int{j, int(f.Hops)}
	n.saved[at] += f.Charge()
	for k := range frames {
		n.saved[at] -= frames[k].Charge()
	}
	if back := n.saved[at] - Reserve; back > 0 {
		n.saved[at] = Reserve
		if _, err := n.Forward.Credit(w.Now, ID(j), forward.Credit{Class: f.Hops, Bytes: uint32(back)}); err != nil {
			panic(err)
		}
	}
}

// arrive passes an output of node i to node j, encoded and decoded.
func (w *Network) arrive(i, j, link int, c forward.Credit, frames []forward.Frame) {
	n := w.Nodes[j]
	if w.links[[2]int{i, j}] != link || n.Dead {
		return
	}
	if c.Bytes > 0 {
		if w.Nodes[i].Silent {
			return
		}
		c, err := forward.ParseCredit(c.Append(nil))
		if err != nil {
			panic(err)
		}
		effects, err := n.Forward.Credit(w.Now, ID(i), c)
		if err != nil {
			panic(err)
		}
		w.carryOut(j, effects)
		return
	}
	for _, sent := range frames {
		f, size, err := forward.ParseHeader(sent.AppendHeader(nil))
		if err != nil || size != len(sent.Payload) {
			panic(fmt.Sprint("relaytest: header of a frame: ", size, err))
		}
		f.Payload = slices.Clone(sent.Payload)
		effects, err := n.Forward.Receive(w.Now, ID(i), f)
		if err != nil {
			w.Cut(j, i) // The neighbor violates the protocol.
			return
		}
		delivered := effects.Delivered
		w.carryOut(j, effects)
		if delivered && n.Deliver != nil {
			n.Deliver(f, i)
		}
	}
}

// Kill ends node i. Its neighbors notice at once, and the routes change.
func (w *Network) Kill(i int) {
	w.Nodes[i].Dead = true
	peers := slices.Clone(w.graph[i])
	for _, j := range peers {
		w.unlink(i, j)
	}
	w.changed(append(peers, i))
}

// Cut ends the link between two living nodes.
func (w *Network) Cut(i, j int) {
	w.unlink(i, j)
	w.changed([]int{i, j})
}

func (w *Network) unlink(i, j int) {
	delete(w.links, [2]int{i, j})
	delete(w.links, [2]int{j, i})
	w.graph.unlink(i, j)
}

// changed measures the routes again and tells the ends of the lost links.
func (w *Network) changed(ends []int) {
	w.measure()
	for _, i := range ends {
		for _, j := range ends {
			if n := w.Nodes[i]; i != j && !n.Dead && w.links[[2]int{i, j}] == 0 {
				w.carryOut(i, n.Forward.NeighborDown(w.Now, ID(j)))
			}
		}
	}
	for _, n := range w.Nodes {
		if !n.Dead && n.Rerouted != nil {
			n.Rerouted()
		}
	}
}
