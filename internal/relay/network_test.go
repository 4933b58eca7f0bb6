package relay

import (
	"context"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

// A network is a set of endpoints. Neighbors are linked in memory.
type network struct {
	tb        testing.TB
	mem       *mem.Network
	links     []transport.Transport
	endpoints []*Endpoint

	medium medium
	wiring sync.WaitGroup

	mu    sync.Mutex
	graph relaytest.Graph  // of living links
	wires map[[2]int]*wire // by the nodes that write and read
}

// routes are the next hops of one node.
type routes struct {
	network *network
	self    int
}

// NextHops implements [forward.Routes].
func (r routes) NextHops(destination membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	r.network.mu.Lock()
	defer r.network.mu.Unlock()
	if i := relaytest.Index(destination); i < 0 || i >= len(r.network.graph) || relaytest.ID(i) != destination {
		return append(hops, destination) // It may be about to join.
	}
	return r.network.graph.NextHops(r.self, destination, hops)
}

// violated reports that an honest endpoint, or a hostile one that keeps the protocol between neighbors, counts as a violator.
func (n *network) violated(err error) { n.tb.Errorf("a neighbor has violated the protocol: %v", err) }

// newNetwork returns endpoints that are linked as in the graph.
func newNetwork(tb testing.TB, graph relaytest.Graph, configure func(i int, cfg *Config)) *network {
	tb.Helper()
	return newNetworkOver(tb, graph, medium{}, configure)
}

// newNetworkOver is newNetwork with links that have properties.
func newNetworkOver(tb testing.TB, graph relaytest.Graph, m medium, configure func(i int, cfg *Config)) *network {
	tb.Helper()
	n := &network{tb: tb, mem: mem.NewNetwork(), graph: graph.Clone(), medium: m, wires: make(map[[2]int]*wire)}
	tb.Cleanup(n.wiring.Wait)
	ca := testpeer.NewCA(tb)
	for i := range graph {
		creds := ca.Node(tb, relaytest.ID(i).String())
		cfg := Config{
			Self: relaytest.ID(i), Routes: routes{n, i}, HopLimit: len(graph),
			Server: creds.Server(), Client: creds.Client, Peer: creds.Peer,
		}
		if configure != nil {
			configure(i, &cfg)
		}
		e, err := New(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		link, err := n.mem.Listen(relaytest.ID(i).String())
		if err != nil {
			tb.Fatal(err)
		}
		n.links, n.endpoints = append(n.links, link), append(n.endpoints, e)
		tb.Cleanup(func() {
			e.Close()
			link.Close()
		})
	}
	for i, peers := range graph {
		for _, j := range peers {
			if i < j {
				n.link(i, j)
			}
		}
	}
	return n
}

// link links two neighbors.
func (n *network) link(i, j int) {
	n.tb.Helper()
	ctx := context.Background()
	a, err := n.links[i].Dial(ctx, n.links[j].Addr(), "")
	if err != nil {
		n.tb.Fatal(err)
	}
	b, err := n.links[j].Accept(ctx)
	if err != nil {
		n.tb.Fatal(err)
	}
	aSends, bReads := n.pipe(a, b)
	bSends, aReads := n.pipe(b, a)
	aSends, bSends = n.wire(i, j, aSends), n.wire(j, i, bSends)
	if err := n.endpoints[i].Attach(relaytest.ID(j), aSends, aReads, n.violated); err != nil {
		n.tb.Fatal(err)
	}
	if err := n.endpoints[j].Attach(relaytest.ID(i), bSends, bReads, n.violated); err != nil {
		n.tb.Fatal(err)
	}
}

// pipe opens a pipe.
func (n *network) pipe(a, b transport.Conn) (transport.Sender, transport.Receiver) {
	n.tb.Helper()
	s, err := a.OpenPipe(context.Background())
	if err != nil {
		n.tb.Fatal(err)
	}
	r, err := b.AcceptPipe(context.Background())
	if err != nil {
		n.tb.Fatal(err)
	}
	return s, r
}

// kill ends node i, and tells the others as the mesh does.
func (n *network) kill(i int) {
	n.mem.Kill(n.links[i].Addr())
	n.mu.Lock()
	n.graph.Remove(i)
	n.mu.Unlock()
	for j, e := range n.endpoints {
		if j != i {
			e.NodeGone(relaytest.ID(i))
		}
	}
}
