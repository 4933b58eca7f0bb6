//race:none it starts no goroutine

package forward_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
)

const smallBuffer = 2 * forward.ChargeMax

var zeros [forward.PayloadMax]byte

// A pair is a source and a destination.
type pair struct{ from, to int }

// A traffic sends frames through a network and checks their arrival.
type traffic struct {
	*relaytest.Network
	t       *testing.T
	sent    map[pair]uint64
	got     map[pair]uint64
	dropped int
	lossy   bool // numbers may be missing, but never repeat
}

func newTraffic(t *testing.T, w *relaytest.Network) *traffic {
	x := &traffic{Network: w, t: t, sent: make(map[pair]uint64), got: make(map[pair]uint64)}
	for i, n := range w.Nodes {
		n.Dropped = func(forward.Drop) { x.dropped++ }
		n.Deliver = func(f forward.Frame, _ int) {
			p := pair{relaytest.Index(f.Source), relaytest.Index(f.Destination)}
			switch {
			case p.to != i:
				t.Fatalf("node %d gets a frame for %d", i, p.to)
			case !x.lossy && f.Seq != x.got[p]+1:
				t.Fatalf("frame %d from %d to %d arrives after frame %d", f.Seq, p.from, p.to, x.got[p])
			}
			if x.lossy {
				x.got[p]++
			} else {
				x.got[p] = f.Seq
			}
		}
	}
	return x
}

func (x *traffic) send(from, to, size int) {
	p := pair{from, to}
	x.sent[p]++
	x.Send(from, forward.Frame{
		Kind: forward.Data, Source: relaytest.ID(from), Destination: relaytest.ID(to), Seq: x.sent[p], Payload: zeros[:size],
	})
}

// sendRandom sends frames between random nodes.
func (x *traffic) sendRandom(frames int) {
	n := len(x.Nodes)
	for range frames {
		from := x.Rand.IntN(n)
		to := (from + 1 + x.Rand.IntN(n-1)) % n
		size := x.Rand.IntN(forward.PayloadMax + 1)
		if x.Rand.IntN(2) == 0 {
			size = x.Rand.IntN(100)
		}
		x.send(from, to, size)
	}
}

// missing returns the number of frames that have not arrived.
func (x *traffic) missing() (frames uint64) {
	for p, n := range x.sent {
		frames += n - x.got[p]
	}
	return frames
}

// checkMemory checks the bound of the memory of each node.
func (x *traffic) checkMemory(graph relaytest.Graph, cfg forward.Config) (most int) {
	x.t.Helper()
	for i, n := range x.Nodes {
		bound := len(graph[i]) * cfg.HopLimit * cfg.Buffer
		if n.HeldMax > bound {
			x.t.Errorf("node %d held %d bytes, want at most %d links × %d classes × %d bytes = %d", i, n.HeldMax, len(graph[i]), cfg.HopLimit, cfg.Buffer, bound)
		}
		if held := n.Forward.Held(); held != 0 {
			x.t.Errorf("node %d holds %d bytes at the end", i, held)
		}
		most = max(most, n.HeldMax)
	}
	return most
}

// Every frame arrives once and in order on random graphs with random loads, and the memory is bounded.
func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 3 + rng.IntN(22)
		graph := relaytest.Random(rng, n, rng.IntN(2*n))
		cfg := forward.Config{HopLimit: graph.Diameter(), Buffer: smallBuffer, Stall: time.Hour}
		x := newTraffic(t, relaytest.New(seed, graph, cfg))
		for range 5 {
			x.At(time.Duration(rng.IntN(5000))*time.Microsecond, func() { x.sendRandom(60) })
		}
		x.Run(time.Minute)
		if x.missing() > 0 || x.dropped > 0 {
			t.Fatalf("seed %d: %d of 300 frames have not arrived, %d dropped", seed, x.missing(), x.dropped)
		}
		x.checkMemory(graph, cfg)
	}
}

// ringLoad saturates a ring: each node sends to the node a third of the way round.
func ringLoad(t *testing.T, n, frames int, prepare ...func(*forward.Node)) *traffic {
	cfg := forward.Config{HopLimit: n / 2, Buffer: smallBuffer, Stall: 1000 * time.Hour}
	x := newTraffic(t, relaytest.New(1, relaytest.Ring(n), cfg, prepare...))
	for range frames {
		for i := range n {
			x.send(i, (i+n/3)%n, forward.PayloadMax)
		}
	}
	x.Run(time.Hour)
	return x
}

// Cyclic loads that saturate all buffers do not deadlock, since a frame waits for a buffer of
// the next class only.
func TestCyclicLoad(t *testing.T) {
	for _, n := range []int{6, 9, 16, 31} {
		if x := ringLoad(t, n, 50); x.missing() > 0 || x.dropped > 0 {
			t.Errorf("ring of %d: %d frames have not arrived, %d dropped", n, x.missing(), x.dropped)
		}
	}
}

// The same loads deadlock if all frames use one class: the test above can fail.
func TestOneClassDeadlocks(t *testing.T) {
	for _, n := range []int{6, 9, 16, 31} {
		x := ringLoad(t, n, 50, func(f *forward.Node) { f.UseClasses(1) })
		if x.missing() == 0 {
			t.Errorf("ring of %d: all frames arrive with one class: the load does not show a deadlock", n)
		}
		held := 0
		for _, node := range x.Nodes {
			held += node.Forward.Held()
		}
		if held == 0 {
			t.Errorf("ring of %d: frames are missing, but none waits in a buffer", n)
		}
	}
}

// hypercube returns a hypercube of 2^d nodes.
func hypercube(d int) relaytest.Graph {
	g := make(relaytest.Graph, 1<<d)
	for i := range g {
		for bit := range d {
			g[i] = append(g[i], i^1<<bit)
		}
	}
	return g
}

// The memory of a relay does not depend on the number of nodes, but on its links and the hop limit.
func TestMemory(t *testing.T) {
	for _, d := range []int{3, 5, 7} {
		graph := hypercube(d)
		cfg := forward.Config{HopLimit: d, Buffer: forward.DefaultBuffer, Stall: time.Hour}
		x := newTraffic(t, relaytest.New(uint64(d), graph, cfg))
		for range 100 { // to one node: its links are the bottleneck
			for i := range len(graph) - 1 {
				x.send(i+1, 0, forward.PayloadMax)
			}
		}
		x.Run(time.Minute)
		if x.missing() > 0 {
			t.Fatalf("%d nodes: %d frames have not arrived", len(graph), x.missing())
		}
		most := x.checkMemory(graph, cfg)
		t.Logf("%d nodes: a relay held %d KiB at most, the bound is %d KiB", len(graph), most>>10, d*d*cfg.Buffer>>10)
	}
}

// Sources share a link equally. The number and the length of the frames that wait do not matter, and the
// relay's own frames count as one more source.
func TestFairness(t *testing.T) {
	const sources, relay, sink = 5, 5, 6
	graph := make(relaytest.Graph, 7)
	for i := range sources {
		graph[i] = []int{relay}
		graph[relay] = append(graph[relay], i)
	}
	graph[relay] = append(graph[relay], sink)
	graph[sink] = []int{relay}
	cfg := forward.Config{HopLimit: 2, Buffer: forward.DefaultBuffer}
	w := relaytest.New(1, graph, cfg)
	got := make([]int, 7)
	w.Nodes[sink].Deliver = func(f forward.Frame, _ int) {
		got[relaytest.Index(f.Source)] += forward.HeaderSize + len(f.Payload)
	}
	send := func(from, frames, size int) {
		for range frames {
			w.Send(from, forward.Frame{Kind: forward.Data, Source: relaytest.ID(from), Destination: relaytest.ID(sink), Payload: make([]byte, size)})
		}
	}
	for i := range sources {
		send(i, 1000*(i+1), forward.PayloadMax/(1+i))
	}
	send(relay, 5000, 4000)
	w.Run(20 * time.Millisecond) // All sources still have frames.
	least, most := got[0], got[0]
	for i := range sink {
		least, most = min(least, got[i]), max(most, got[i])
	}
	t.Logf("bytes by source: %v", got[:sink])
	// Short frames pay frameCharge bytes of overhead each, 2 % at 3 KiB. A turn is one quantum.
	if least < 20*forward.ChargeMax || most-least > 2*forward.ChargeMax+most/20 {
		t.Errorf("sources got %d to %d bytes through a saturated relay", least, most)
	}
}

// Relays die at random moments under load. No frame arrives twice, and no buffer stays occupied.
func TestDeaths(t *testing.T) {
	lost, rerouted := uint64(0), uint64(0)
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n := 8 + rng.IntN(12)
		graph := relaytest.Random(rng, n, 2*n)
		cfg := forward.Config{HopLimit: 2 * graph.Diameter(), Buffer: smallBuffer}
		x := newTraffic(t, relaytest.New(seed, graph, cfg))
		x.lossy = true
		seen := make(map[[3]uint64]bool)
		for _, node := range x.Nodes {
			count := node.Deliver
			node.Deliver = func(f forward.Frame, from int) {
				key := [3]uint64{uint64(relaytest.Index(f.Source)), uint64(relaytest.Index(f.Destination)), f.Seq}
				if seen[key] {
					t.Fatalf("seed %d: frame %v arrives twice", seed, key)
				}
				seen[key] = true
				count(f, from)
			}
		}
		x.sendRandom(400)
		for range 3 {
			x.At(time.Duration(rng.IntN(3000))*time.Microsecond, func() { x.Kill(rng.IntN(n)) })
		}
		x.At(time.Duration(rng.IntN(3000))*time.Microsecond, func() { i := rng.IntN(n); x.Cut(i, graph[i][0]) })
		x.At(5*time.Millisecond, func() { x.sendRandom(100) })
		if !x.Run(time.Hour) {
			t.Fatalf("seed %d: events are left", seed)
		}
		for i, node := range x.Nodes {
			if held := node.Forward.Held(); held != 0 && !node.Dead {
				t.Errorf("seed %d: node %d holds %d bytes at the end", seed, i, held)
			}
			rerouted += node.Forward.Stats().Rerouted
		}
		lost += x.missing()
	}
	t.Logf("%d frames were lost, %d rerouted", lost, rerouted)
	if rerouted == 0 || lost == 0 {
		t.Error("no frame was rerouted or lost: the deaths came too late")
	}
}

// A neighbor that gives no credit delays frames for Config.Stall at most, if there is another way.
func TestStall(t *testing.T) {
	graph := relaytest.Ring(4)
	cfg := forward.Config{HopLimit: 4, Buffer: smallBuffer, Stall: time.Second}
	x := newTraffic(t, relaytest.New(1, graph, cfg))
	x.Nodes[1].Silent = true
	for range 20 {
		x.send(0, 2, 10_000)
	}
	x.Run(500 * time.Millisecond)
	before := x.got[pair{0, 2}]
	x.Run(2 * time.Second)
	for range 20 {
		x.send(0, 2, 10_000)
	}
	x.Run(500 * time.Millisecond)
	if got := x.got[pair{0, 2}]; got != 40 {
		t.Errorf("%d of 40 frames have arrived: later ones wait for the neighbor that has stalled", got)
	}
	if got := x.got[pair{0, 2}]; before != 0 || got < 20 {
		t.Errorf("%d of 20 frames arrived before the stall was noticed, want 0, and %d after it, want all", before, got)
	}
}

// A neighbor that violates the protocol is reported.
func TestViolations(t *testing.T) {
	now := time.Unix(1, 0)
	a, b := relaytest.ID(0), relaytest.ID(1)
	frame := func(hops uint8, size int) forward.Frame {
		return forward.Frame{Hops: hops, Kind: forward.Data, Source: b, Destination: a, Payload: make([]byte, size)}
	}
	for name, test := range map[string]struct {
		event func(n *forward.Node) error
		want  string
	}{
		"no hops":        {func(n *forward.Node) error { _, err := n.Receive(now, b, frame(0, 1)); return err }, "after 0 hops: must be 1 to 3"},
		"many hops":      {func(n *forward.Node) error { _, err := n.Receive(now, b, frame(4, 1)); return err }, "after 4 hops"},
		"not a neighbor": {func(n *forward.Node) error { _, err := n.Receive(now, relaytest.ID(5), frame(1, 1)); return err }, "no neighbor"},
		"no credit":      {func(n *forward.Node) error { _, err := n.Receive(now, b, frame(1, 1)); return err }, "its credit is 0"},
		"credit class 0": {func(n *forward.Node) error { _, err := n.Credit(now, b, forward.Credit{Bytes: 5}); return err }, "for class 0"},
		"credit class 4": {func(n *forward.Node) error {
			_, err := n.Credit(now, b, forward.Credit{Class: 4, Bytes: 5})
			return err
		}, "for class 4"},
		"too much credit": {func(n *forward.Node) error {
			_, err := n.Credit(now, b, forward.Credit{Class: 1, Bytes: 1 << 30})
			return err
		}, "bytes in all"},
	} {
		n, err := forward.New(forward.Config{Self: a, HopLimit: 3, Buffer: smallBuffer})
		if err != nil {
			t.Fatal(err)
		}
		n.NeighborUp(now, b)
		if err := test.event(n); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	for _, cfg := range []forward.Config{{}, {HopLimit: 65}, {HopLimit: 2, Buffer: 100}} {
		if _, err := forward.New(cfg); err == nil {
			t.Errorf("New accepts %+v", cfg)
		}
	}
}

// A frame makes HopLimit hops at most, even if the routes are a loop.
func TestHopLimit(t *testing.T) {
	graph := relaytest.Ring(6)
	cfg := forward.Config{HopLimit: 2}
	x := newTraffic(t, relaytest.New(1, graph, cfg))
	var reasons []forward.Reason
	for _, n := range x.Nodes {
		n.Dropped = func(d forward.Drop) { reasons = append(reasons, d.Reason) }
	}
	x.send(0, 3, 10)
	x.send(0, 2, 10)
	x.Run(time.Minute)
	if len(reasons) != 1 || reasons[0] != forward.HopLimit || x.got[pair{0, 2}] != 1 {
		t.Errorf("got drops %v and %d frames over two hops, want one %v and 1", reasons, x.got[pair{0, 2}], forward.HopLimit)
	}
}

// The bits of Attempt make the nodes take the alternative next hop.
func TestAttempt(t *testing.T) {
	for attempt := range uint8(2) {
		x := newTraffic(t, relaytest.New(1, relaytest.Ring(4), forward.Config{HopLimit: 4}))
		from := -1
		x.Nodes[2].Deliver = func(_ forward.Frame, via int) { from = via }
		x.Send(0, forward.Frame{Attempt: attempt, Kind: forward.Data, Source: relaytest.ID(0), Destination: relaytest.ID(2)})
		x.Run(time.Minute)
		if want := []int{1, 3}[attempt]; from != want {
			t.Errorf("attempt %d arrives from node %d, want %d", attempt, from, want)
		}
	}
}

// toward are routes with one next hop for all destinations.
type toward membership.NodeID

func (id toward) NextHops(_ membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	return append(hops, membership.NodeID(id))
}

// Frames of an earlier link still occupy their buffers, so a new link to the same neighbor gets credit
// for the rest, and for all when they have left.
func TestLinkIsReplaced(t *testing.T) {
	now := time.Unix(1, 0)
	a, self, c := relaytest.ID(0), relaytest.ID(1), relaytest.ID(2)
	n, err := forward.New(forward.Config{Self: self, Routes: toward(c), HopLimit: 2, Buffer: smallBuffer})
	if err != nil {
		t.Fatal(err)
	}
	n.NeighborUp(now, a)
	n.NeighborUp(now, c)
	credit := func() (bytes int) {
		for {
			out, ok, _ := n.Next(now, a)
			if !ok {
				return bytes
			}
			if out.Credit.Bytes == 0 {
				t.Fatalf("got %+v for a neighbor without frames", out)
			}
			if out.Credit.Class == 1 {
				bytes += int(out.Credit.Bytes)
			}
		}
	}
	if got := credit(); got != smallBuffer {
		t.Fatalf("a new link gets credit of %d bytes, want %d", got, smallBuffer)
	}
	f := forward.Frame{Hops: 1, Kind: forward.Data, Source: a, Destination: c, Payload: zeros[:]}
	for range 2 {
		if _, err := n.Receive(now, a, f); err != nil {
			t.Fatal(err)
		}
	}
	n.NeighborUp(now, a)
	if got := credit(); got != 0 {
		t.Errorf("the next link gets credit of %d bytes for a full buffer", got)
	}
	if _, err := n.Credit(now, c, forward.Credit{Class: 2, Bytes: smallBuffer}); err != nil {
		t.Fatal(err)
	}
	frames := 0
	for out, ok, _ := n.Next(now, c); ok; out, ok, _ = n.Next(now, c) {
		if out.Credit.Bytes == 0 {
			frames++
		}
	}
	if frames != 2 {
		t.Fatalf("%d frames leave, want 2", frames)
	}
	if got := credit(); got != smallBuffer || n.Held() != 0 {
		t.Errorf("credit of %d bytes returns, want %d; %d bytes are held", got, smallBuffer, n.Held())
	}
}

// A long frame that waits for credit gets it before the short frames of another source.
func TestLongFrameIsNotStarved(t *testing.T) {
	now := time.Unix(1, 0)
	self, next := relaytest.ID(0), relaytest.ID(1)
	n, err := forward.New(forward.Config{Self: self, Routes: toward(next), HopLimit: 2, Buffer: smallBuffer})
	if err != nil {
		t.Fatal(err)
	}
	n.NeighborUp(now, next)
	n.Send(now, forward.Frame{Kind: forward.Data, Source: relaytest.ID(2), Destination: next, Payload: zeros[:]})
	for range 200 {
		n.Send(now, forward.Frame{Kind: forward.Data, Source: relaytest.ID(3), Destination: next, Payload: zeros[:10]})
	}
	for credit := 0; credit < smallBuffer; credit += 200 {
		if _, err := n.Credit(now, next, forward.Credit{Class: 1, Bytes: 200}); err != nil {
			t.Fatal(err)
		}
		for out, ok, _ := n.Next(now, next); ok; out, ok, _ = n.Next(now, next) {
			if len(out.Frame.Payload) == forward.PayloadMax {
				return
			}
			if out.Credit.Bytes == 0 && credit > forward.ChargeMax {
				t.Fatalf("a short frame leaves after credit of %d bytes, the long one has not left", credit)
			}
		}
	}
	t.Error("the long frame has not left")
}
