package forward_test

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
)

// Sources share the link to a neighbor equally. The number and the length of the frames that wait do not matter, and the relay's own frames
// are those of one more source.
func TestFairness(t *testing.T) {
	const sources, relay, sink = 4, 4, 5
	graph := make(relaytest.Graph, 6)
	for i := range sources {
		graph[i] = []int{relay}
		graph[relay] = append(graph[relay], i)
	}
	graph[relay] = append(graph[relay], sink)
	graph[sink] = []int{relay}
	w := newSimulated(1, graph, 2)
	got := make([]int, 5)
	w.Nodes[sink].Deliver = func(f forward.Frame, _ int) { got[relaytest.Index(f.Source)] += len(f.Payload) }
	sizes := []int{forward.PayloadMax, 9000, 4000, 1300, 2600}
	var load func()
	load = func() { // QUIC sends again what is lost.
		for from, size := range sizes {
			for w.Send(from, forward.Frame{Kind: forward.Packets, Source: relaytest.ID(from), Destination: relaytest.ID(sink), Payload: zeros[:size:size]}) == forward.Queued {
			}
		}
		w.At(100*time.Microsecond, load)
	}
	load()
	w.Run(100 * time.Millisecond)
	least, most := got[0], got[0]
	for _, n := range got {
		least, most = min(least, n), max(most, n)
	}
	t.Logf("bytes by source: %v", got)
	if least < 10<<20 || most > least*6/5 {
		t.Errorf("sources have sent %d to %d bytes through a saturated relay, want at least 10 MiB and differences below 20 %%", least, most)
	}
}

// A source with long frames gets as many bytes in turn as one with short frames.
func TestLongFrameIsNotStarved(t *testing.T) {
	n := newNode(t, relaytest.ID(0), direct{}, relaytest.ID(1), relaytest.ID(2))
	short := 0
	for range 1000 {
		receive(t, n, start, 2, frame(7, 1, 10))
	}
	receive(t, n, start, 2, frame(8, 1, forward.PayloadMax))
	for _, f := range take(n, start, 1) {
		if len(f.Payload) == forward.PayloadMax {
			break
		}
		short += forward.HeaderSize + len(f.Payload)
	}
	if short > forward.HeaderSize+forward.PayloadMax {
		t.Errorf("%d bytes of short frames leave before the long frame of another source", short)
	}
}

// A source that fills its queue, or a neighbor that fills its share, does not take the room of another one.
func TestQueueBounds(t *testing.T) {
	n := newNode(t, relaytest.ID(0), direct{}, relaytest.ID(1), relaytest.ID(2), relaytest.ID(3))
	fill := func(from, source, to int) (bytes int) {
		for receive(t, n, start, from, frame(source, to, 8000)) == forward.Queued {
			bytes += 8000
		}
		return bytes
	}
	least, most := forward.QueueMax*3/4, forward.QueueMax
	for source := 10; source < 12; source++ {
		if got := fill(2, source, 1); got < least || got > most {
			t.Errorf("the queue of source %d takes %d bytes, want %d to %d", source, got, least, most)
		}
	}
	fill(2, 13, 1)
	if got := fill(2, 14, 1); got > 0 {
		t.Errorf("neighbor 2 has filled its share, and %d bytes more are queued", got)
	}
	if got := fill(2, 10, 3); got < least || got > most {
		t.Errorf("neighbor 2 gets room for %d bytes for another neighbor, want %d to %d", got, least, most)
	}
	if got := fill(3, 20, 1); got < least {
		t.Errorf("neighbor 3 gets room for %d bytes beside neighbor 2, want %d", got, least)
	}
	own := 0
	for o := forward.Queued; o == forward.Queued; own += 1280 {
		o, _ = n.Send(start, frame(0, 1, 0), zeros[:1280])
	}
	if own < least || own > most || waits(n) > forward.QueueMax+forward.PayloadMax || n.Waiting() != waits(n) {
		t.Errorf("own packets get room for %d bytes, want %d to %d", own, least, most)
	}
	take(n, start, 1)
	if got := fill(2, 14, 1); got < least {
		t.Errorf("neighbor 2 gets room for %d bytes when its frames have left, want %d", got, least)
	}
	take(n, start, 1)
	take(n, start, 3)
	if n.Held() != 0 {
		t.Errorf("%d bytes are held at the end", n.Held())
	}
}

// Neighbors that do not read take room from frames for others only until their frames are too old.
func TestNeighborsThatDoNotRead(t *testing.T) {
	const silent = 8
	ids := []membership.NodeID{relaytest.ID(1), relaytest.ID(2)}
	for i := range silent {
		ids = append(ids, relaytest.ID(10+i))
	}
	n := newNode(t, relaytest.ID(0), direct{}, ids...)
	for i := range silent {
		for source := range 3 {
			for receive(t, n, start, 2, frame(30+source, 10+i, 8000)) == forward.Queued {
			}
		}
	}
	if o := receive(t, n, start, 2, frame(30, 1, 8000)); o != forward.Full {
		t.Fatalf("a frame is %v while neighbor 2 holds %d bytes", o, n.Held())
	}
	if o := receive(t, n, start.Add(forward.AgeMax+time.Millisecond), 2, frame(30, 1, 8000)); o != forward.Queued {
		t.Errorf("a frame is %v after the others have become too old", o)
	}
	if held := n.Held(); held > 16<<10 {
		t.Errorf("%d bytes are held, want only the last frame", held)
	}
}

// A neighbor with frames of many invented sources gets a bounded share beside another neighbor.
func TestInventedSources(t *testing.T) {
	n := newNode(t, relaytest.ID(0), direct{}, relaytest.ID(1), relaytest.ID(2), relaytest.ID(3))
	for source := range 100 {
		receive(t, n, start, 2, frame(100+source, 1, 8000))
	}
	for range 30 {
		receive(t, n, start, 3, frame(3, 1, 8000))
	}
	invented := 0
	for honest := 0; honest < 10; {
		f, ok := n.Next(start, relaytest.ID(1))
		switch {
		case !ok:
			t.Fatal("no frame leaves")
		case f.Source == relaytest.ID(3):
			honest++
		default:
			invented++
		}
	}
	if invented > 10*8+16 {
		t.Errorf("%d frames of invented sources leave before 10 of the other neighbor, want 8 for each and one turn", invented)
	}
}

// A neighbor can write any source into its frames. Those with the source of another node do not take that node's room, nor that of this node.
func TestForgedSourceTakesNoRoom(t *testing.T) {
	n := newNode(t, relaytest.ID(0), direct{}, relaytest.ID(1), relaytest.ID(2), relaytest.ID(3))
	for range 1000 {
		receive(t, n, start, 2, frame(0, 1, 5000))
		receive(t, n, start, 2, frame(3, 1, 5000))
	}
	if waits(n) > 0 || n.Waiting() > 0 {
		t.Errorf("%d forged bytes count as those of this node", waits(n))
	}
	for range 20 {
		if o, _ := n.Send(start, frame(0, 1, 0), zeros[:1280]); o != forward.Queued {
			t.Fatalf("a packet of this node is %v", o)
		}
		if o := receive(t, n, start, 3, frame(3, 1, 1280)); o != forward.Queued {
			t.Fatalf("a frame of node 3 is %v", o)
		}
	}
	own, others := 0, 0
	for range 60 { // Less than what neighbor 2 has queued: the queues take turns.
		f, _ := n.Next(start, relaytest.ID(1))
		switch {
		case f.Source == relaytest.ID(0) && len(f.Payload) != 5000:
			own++
		case f.Source == relaytest.ID(3) && len(f.Payload) != 5000:
			others++
		}
	}
	if own == 0 || others != 20 {
		t.Errorf("%d frames of this node and %d of node 3 leave beside the forged ones", own, others)
	}
}

// heap returns the size of the heap.
func heap() int {
	runtime.GC()
	runtime.GC() // It empties the pools.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Whatever a neighbor sends, the memory that its frames occupy is bounded, also if it comes back with a new link, or several times.
func TestMemoryOfNeighborIsBounded(t *testing.T) {
	const frames, neighbors = 50_000, 8
	rng := rand.New(rand.NewPCG(5, 1))
	random := func(n int) func() int { return func() int { return rng.IntN(n) } }
	constant := func(n int) func() int { return func() int { return n } }
	for name, test := range map[string]struct {
		size, source, to func() int // The destination is a neighbor.
		again            int        // number of frames between two links
	}{
		"no payload, forged sources":       {constant(0), random(1 << 30), random(neighbors), frames},
		"one source":                       {constant(forward.PayloadMax), constant(50), random(neighbors), frames},
		"source of this node":              {constant(100), constant(0), random(neighbors), frames},
		"short, forged sources":            {constant(100), random(1 << 30), constant(3), frames},
		"2 KiB, forged sources":            {constant(2<<10 + 1), random(1 << 30), random(neighbors), frames},
		"8 KiB, forged sources":            {constant(8<<10 + 1), random(1 << 30), random(neighbors), frames},
		"random, forged sources":           {random(forward.PayloadMax + 1), random(1 << 30), random(neighbors), frames},
		"link is replaced, forged sources": {random(forward.PayloadMax + 1), random(1 << 30), random(neighbors), 1000},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, relaytest.ID(0), direct{})
			const hostile = 100
			n.NeighborUp(relaytest.ID(hostile))
			for i := range neighbors {
				n.NeighborUp(relaytest.ID(1 + i))
			}
			before := heap()
			for i := range frames {
				if i%test.again == test.again-1 {
					n.NeighborDown(relaytest.ID(hostile))
					n.NeighborUp(relaytest.ID(hostile))
				}
				f := frame(0, 1+test.to(), test.size())
				binary.BigEndian.PutUint32(f.Source[:], uint32(test.source())+1)
				if o := receive(t, n, start, hostile, f); o == forward.Full {
					continue
				} else if o != forward.Queued {
					t.Fatalf("a frame is %v", o)
				}
			}
			grown := heap() - before
			t.Logf("%d bytes are held, the heap has grown by %d KiB", n.Held(), grown>>10)
			if n.Held() > forward.HeldMax || grown > forward.HeldMax*3/2 {
				t.Errorf("%d bytes are held, and the heap has grown by %d, want at most %d", n.Held(), grown, forward.HeldMax)
			}
			if n.Held() < forward.QueueMax/2 {
				t.Errorf("%d bytes are held: the attack is weak", n.Held())
			}
			for i := range neighbors {
				for _, f := range take(n, start, 1+i) {
					n.Free(f.Payload)
				}
			}
			if left := heap() - before; left > forward.HeldMax/2 || n.Held() != 0 { // Maps do not shrink.
				t.Errorf("%d bytes are held, and %d on the heap, when all frames have left", n.Held(), left)
			}
			for i := range neighbors {
				n.NeighborDown(relaytest.ID(1 + i))
			}
		})
	}
}

// Packets of this node to many nodes share a frame only with those to the same one. Their memory is bounded all the same.
func TestMemoryOfOwnPacketsIsBounded(t *testing.T) {
	n := newNode(t, relaytest.ID(0), via{relaytest.ID(1)}, relaytest.ID(1))
	before := heap()
	for i := range 100_000 {
		n.Send(start, frame(0, 2+i/2%300, 0), zeros[:50]) // two for each
	}
	if grown := heap() - before; n.Held() > forward.QueueMax+2*forward.PayloadMax || grown > forward.QueueMax*3/2 {
		t.Errorf("%d bytes are held, and the heap has grown by %d, want at most %d", n.Held(), grown, forward.QueueMax)
	}
	if got := take(n, start, 1); len(got) < 20 {
		t.Errorf("%d frames were held", len(got))
	}
}

// waits returns the memory of the frames of node 0 that wait for node 1.
func waits(n *forward.Node) int {
	_, memory := n.Waits(frame(0, 1, 0))
	return memory
}
