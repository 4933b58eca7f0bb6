package forward_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
)

// A pair is a source and a destination.
type pair struct{ from, to int }

// A traffic sends numbered frames through a network, and checks where and in which order they arrive.
type traffic struct {
	*simulated
	t         *testing.T
	unordered bool            // the routes change
	sent      map[pair]uint32 // number of the last frame
	last      map[pair]uint32 // that has arrived
	got       map[pair]int
	seen      map[pair]map[uint32]bool
}

func newTraffic(t *testing.T, w *simulated) *traffic {
	x := &traffic{simulated: w, t: t, sent: make(map[pair]uint32), last: make(map[pair]uint32), got: make(map[pair]int), seen: make(map[pair]map[uint32]bool)}
	for i, n := range w.Nodes {
		n.Deliver = func(f forward.Frame, _ int) {
			p, number := pair{relaytest.Index(f.Source), relaytest.Index(f.Destination)}, binary.BigEndian.Uint32(f.Payload)
			if x.seen[p] == nil {
				x.seen[p] = make(map[uint32]bool)
			}
			switch {
			case p.to != i:
				t.Fatalf("node %d gets a frame for %d", i, p.to)
			case number > x.sent[p] || x.seen[p][number]:
				t.Fatalf("frame %d from %d to %d arrives twice, or was not sent", number, p.from, p.to)
			case !x.unordered && number <= x.last[p]:
				t.Fatalf("frame %d from %d to %d arrives after frame %d", number, p.from, p.to, x.last[p])
			}
			x.seen[p][number] = true
			x.last[p] = number
			x.got[p]++
			n.Forward.Free(f.Payload)
		}
	}
	return x
}

// send sends a frame of at least 4 bytes.
func (x *traffic) send(from, to, size int) forward.Outcome {
	p := pair{from, to}
	x.sent[p]++
	payload := make([]byte, size)
	binary.BigEndian.PutUint32(payload, x.sent[p])
	return x.Send(from, forward.Frame{Kind: forward.Packets, Source: relaytest.ID(from), Destination: relaytest.ID(to), Payload: payload})
}

// sendRandom sends frames between random nodes.
func (x *traffic) sendRandom(frames int) {
	n := len(x.Nodes)
	for range frames {
		from := x.Rand.IntN(n)
		to := (from + 1 + x.Rand.IntN(n-1)) % n
		size := 4 + x.Rand.IntN(forward.PayloadMax-3)
		if x.Rand.IntN(2) == 0 {
			size = 4 + x.Rand.IntN(100)
		}
		x.send(from, to, size)
	}
}

// arrived returns the number of frames that have arrived.
func (x *traffic) arrived() (frames int) {
	for _, n := range x.got {
		frames += n
	}
	return frames
}

// check checks that the network is at rest, that all frames have arrived or were dropped, and the bound of the memory of each node.
func (x *traffic) check(graph relaytest.Graph) (dropped int) {
	x.t.Helper()
	var all forward.Stats
	for i, n := range x.Nodes {
		s := n.Forward.Stats()
		all.Sent += s.Sent
		all.Delivered += s.Delivered
		all.Dropped += s.Dropped
		if bound := len(graph[i]) * (forward.HeldMax + forward.QueueMax); n.HeldMax > bound {
			x.t.Errorf("node %d held %d bytes, want at most %d", i, n.HeldMax, bound)
		}
		if held := n.Forward.Held(); held != 0 {
			x.t.Errorf("node %d holds %d bytes at the end", i, held)
		}
	}
	if all.Delivered != uint64(x.arrived()) || all.Sent != all.Delivered+all.Dropped {
		x.t.Errorf("%d frames were sent, %d have arrived, %d delivered, %d dropped", all.Sent, x.arrived(), all.Delivered, all.Dropped)
	}
	return int(all.Dropped)
}

// Every frame arrives once and in order on random graphs, if no queue is full.
func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 3 + rng.IntN(22)
		graph := relaytest.Random(rng, n, rng.IntN(2*n))
		x := newTraffic(t, newSimulated(seed, graph, graph.Diameter()))
		for range 5 {
			x.At(time.Duration(rng.IntN(5000))*time.Microsecond, func() { x.sendRandom(60) })
		}
		if !x.Run(time.Minute) || x.arrived() != 300 {
			t.Fatalf("seed %d: %d of 300 frames have arrived", seed, x.arrived())
		}
		x.check(graph)
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

// Loads that fill all queues, also in circles, do not stop the network: frames that find no room are dropped, and none waits for others. All
// pairs of nodes go on, and the network is at rest soon after the last frame was sent.
func TestSaturatedNetworkGoesOn(t *testing.T) {
	const period, periods = 30 * time.Millisecond, 3
	graphs := map[string]relaytest.Graph{"hypercube": hypercube(4), "line": {{1}, {0, 2}, {1, 3}, {2, 4}, {3}}}
	for n, name := range map[int]string{6: "ring of 6", 9: "ring of 9", 16: "ring of 16"} {
		graphs[name] = relaytest.Ring(n)
	}
	for seed := range uint64(3) {
		graphs["random "+string('0'+rune(seed))] = relaytest.Random(rand.New(rand.NewPCG(seed, 3)), 12, 8)
	}
	for name, graph := range graphs {
		t.Run(name, func(t *testing.T) {
			w := newSimulated(1, graph, graph.Diameter()+2)
			w.Bandwidth = 50
			x := newTraffic(t, w)
			n := len(graph)
			var load func()
			loads := true
			load = func() {
				for from := range n {
					for i := range 8 {
						x.send(from, (from+max(1, n/3))%n, forward.PayloadMax/(1+i))
						x.send(from, (from+1+x.Rand.IntN(n-1))%n, forward.PayloadMax)
					}
				}
				if loads {
					w.At(2*time.Millisecond, load)
				}
			}
			load()
			for range periods {
				before := make(map[pair]int)
				for p, n := range x.got {
					before[p] = n
				}
				w.Run(period)
				for from := range n {
					if p := (pair{from, (from + max(1, n/3)) % n}); x.got[p] == before[p] {
						t.Errorf("no frame from %d to %d arrives in %v", p.from, p.to, period)
					}
				}
			}
			loads = false
			if !w.Run(forward.AgeMax + time.Second) {
				t.Error("frames are on their way a second after the end of the load")
			}
			if dropped := x.check(graph); dropped < x.arrived()/10 {
				t.Errorf("%d frames were dropped, and %d have arrived: the load is too low", dropped, x.arrived())
			}
		})
	}
}

// Relays die at random moments under load, several at once, and links go and come back. No frame arrives twice or at the wrong node, and
// none is held at the end. All frames between nodes that are connected arrive afterwards.
func TestDeaths(t *testing.T) {
	lost := 0
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n := 8 + rng.IntN(12)
		graph := relaytest.Random(rng, n, 2*n)
		x := newTraffic(t, newSimulated(seed, graph, 2*n))
		x.unordered = true
		for i := range 4 {
			x.At(time.Duration(i)*time.Millisecond, func() { x.sendRandom(300) })
		}
		dead := rng.Perm(n)[:3]
		at := time.Duration(rng.IntN(3000)) * time.Microsecond
		for _, i := range dead {
			x.At(at, func() { x.Kill(i) })
		}
		var cut pair
		for { // two living nodes
			if cut.from = rng.IntN(n); len(graph[cut.from]) == 0 {
				continue
			}
			cut.to = graph[cut.from][0]
			if !slices.Contains(dead, cut.from) && !slices.Contains(dead, cut.to) {
				break
			}
		}
		x.At(time.Duration(rng.IntN(3000))*time.Microsecond, func() { x.Cut(cut.from, cut.to) })
		x.At(time.Duration(3000+rng.IntN(1000))*time.Microsecond, func() { x.Link(cut.from, cut.to) })
		if !x.Run(time.Minute) {
			t.Fatalf("seed %d: events are left", seed)
		}
		living := graph.Clone()
		for _, i := range dead {
			living.Remove(i)
		}
		lost -= x.arrived()
		for p, frames := range x.sent {
			lost += int(frames)
			before := x.got[p]
			if x.send(p.from, p.to, 1000); len(living.NextHops(p.from, relaytest.ID(p.to), nil)) > 0 {
				if x.Run(time.Minute); x.got[p] != before+1 {
					t.Errorf("seed %d: no frame arrives from %d to %d after the deaths", seed, p.from, p.to)
				}
			}
		}
		x.Run(time.Minute)
		for i, node := range x.Nodes {
			if held := node.Forward.Held(); held != 0 {
				t.Errorf("seed %d: node %d holds %d bytes at the end", seed, i, held)
			}
		}
	}
	if t.Logf("%d frames were lost", lost); lost == 0 {
		t.Error("no frame was lost: the deaths came too late")
	}
}
