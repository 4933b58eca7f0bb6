//race:none it starts no goroutine

package forward_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
)

var (
	start = time.Unix(1, 0)
	zeros [forward.PayloadMax]byte
)

// via are routes that have the same next hops to all destinations.
type via []membership.NodeID

// NextHops implements [forward.Routes].
func (v via) NextHops(_ membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	return append(hops, v...)
}

// direct are the routes of a node whose neighbors are all destinations.
type direct struct{}

// NextHops implements [forward.Routes].
func (direct) NextHops(destination membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	return append(hops, destination)
}

// newNode returns a node with neighbors.
func newNode(t *testing.T, self membership.NodeID, routes forward.Routes, neighbors ...membership.NodeID) *forward.Node {
	t.Helper()
	n, err := forward.New(forward.Config{Self: self, Routes: routes, HopLimit: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range neighbors {
		n.NeighborUp(id)
	}
	return n
}

// frame is a frame of a source after one hop.
func frame(source, destination, size int) forward.Frame {
	return forward.Frame{Kind: forward.Packets, Hops: 1, Source: relaytest.ID(source), Destination: relaytest.ID(destination), Payload: zeros[:size:size]}
}

// receive passes a frame of a neighbor to a node.
func receive(t *testing.T, n *forward.Node, now time.Time, from int, f forward.Frame) forward.Outcome {
	t.Helper()
	f.Payload = append(n.Payload(len(f.Payload))[:0], f.Payload...)
	o, _, err := n.Receive(now, relaytest.ID(from), f)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// take returns the frames that a node has for a neighbor.
func take(n *forward.Node, now time.Time, to int) (frames []forward.Frame) {
	for f, ok := n.Next(now, relaytest.ID(to)); ok; f, ok = n.Next(now, relaytest.ID(to)) {
		frames = append(frames, f)
	}
	return frames
}

// A frame goes to the best next hop that is a neighbor and not the one that it comes from, and back only if there is no other.
func TestNextHop(t *testing.T) {
	for name, test := range map[string]struct {
		salt        uint8
		destination int
		routes      []int
		from        int // 0: an own frame
		want        forward.Outcome
		to          int
	}{
		"best":                         {0, 9, []int{1, 2}, 3, forward.Queued, 1},
		"own frame":                    {0, 9, []int{1, 2}, 0, forward.Queued, 1},
		"own frame, detour":            {1, 9, []int{1, 2}, 0, forward.Queued, 2},
		"detour":                       {1 << 2, 9, []int{1, 2}, 3, forward.Queued, 2},
		"detour of another hop":        {1 << 4, 9, []int{1, 2}, 3, forward.Queued, 1},
		"detour, no alternative":       {1 << 2, 9, []int{1}, 3, forward.Queued, 1},
		"no detour to a neighbor":      {1 << 2, 1, []int{1, 2}, 3, forward.Queued, 1},
		"not back":                     {0, 9, []int{3, 2}, 3, forward.Queued, 2},
		"detour not back":              {1 << 2, 9, []int{1, 3}, 3, forward.Queued, 1},
		"back":                         {0, 9, []int{3}, 3, forward.Queued, 3},
		"best is no neighbor":          {0, 9, []int{7, 2}, 3, forward.Queued, 2},
		"no neighbor, back":            {0, 9, []int{7, 3}, 3, forward.Queued, 3},
		"no route":                     {0, 9, nil, 3, forward.NoRoute, 0},
		"next hops are no neighbors":   {0, 9, []int{7, 8}, 3, forward.NoRoute, 0},
		"this node is the destination": {0, 100, []int{1}, 3, forward.Delivered, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var hops via
			for _, i := range test.routes {
				hops = append(hops, relaytest.ID(i))
			}
			n := newNode(t, relaytest.ID(100), hops, relaytest.ID(1), relaytest.ID(2), relaytest.ID(3))
			f := forward.Frame{Kind: forward.Packets, Salt: test.salt, Source: relaytest.ID(50), Destination: relaytest.ID(test.destination)}
			o, to := n.Send(start, f, nil)
			if test.from > 0 {
				f.Hops = 1
				var err error
				n = newNode(t, relaytest.ID(100), hops, relaytest.ID(1), relaytest.ID(2), relaytest.ID(3))
				if o, to, err = n.Receive(start, relaytest.ID(test.from), f); err != nil {
					t.Fatal(err)
				}
			}
			if o != test.want || o == forward.Queued && to != relaytest.ID(test.to) {
				t.Errorf("the frame is %v for node %d, want %v for node %d", o, relaytest.Index(to), test.want, test.to)
			}
			if got := take(n, start, test.to); o == forward.Queued && (len(got) != 1 || got[0].Hops != f.Hops+1 || got[0].Salt != f.Salt) {
				t.Errorf("the neighbor gets %+v", got)
			}
		})
	}
}

// A neighbor that violates the protocol is reported.
func TestViolations(t *testing.T) {
	for name, test := range map[string]struct {
		hops uint8
		from int
		want string
	}{
		"no hops":        {0, 1, "after 0 hops: must be 1 to 10"},
		"many hops":      {11, 1, "after 11 hops"},
		"not a neighbor": {1, 5, "no neighbor"},
	} {
		n := newNode(t, relaytest.ID(0), direct{}, relaytest.ID(1))
		f := frame(1, 0, 5)
		f.Hops = test.hops
		if _, _, err := n.Receive(start, relaytest.ID(test.from), f); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	for _, limit := range []int{0, 65} {
		if _, err := forward.New(forward.Config{HopLimit: limit}); err == nil {
			t.Errorf("New accepts the hop limit %d", limit)
		}
	}
}

// A frame makes HopLimit hops at most.
func TestHopLimit(t *testing.T) {
	n := newNode(t, relaytest.ID(0), direct{}, relaytest.ID(1), relaytest.ID(2))
	f := frame(1, 2, 5)
	for hops, want := range map[uint8]forward.Outcome{9: forward.Queued, 10: forward.HopLimit} {
		f.Hops = hops
		if o := receive(t, n, start, 1, f); o != want {
			t.Errorf("after %d hops a frame is %v, want %v", hops, o, want)
		}
	}
	f.Destination = relaytest.ID(0)
	if o := receive(t, n, start, 1, f); o != forward.Delivered {
		t.Errorf("after 10 hops a frame is %v at its destination", o)
	}
	if s := n.Stats(); s != (forward.Stats{Delivered: 1, Dropped: 1}) || len(take(n, start, 2)) != 1 || n.Stats().Forwarded != 1 {
		t.Errorf("the counters are %+v", s)
	}
}

// What waits for a neighbor that goes is lost. Later frames take another way, and this one again when it is back.
func TestNeighborGoes(t *testing.T) {
	n := newNode(t, relaytest.ID(0), via{relaytest.ID(1), relaytest.ID(2)}, relaytest.ID(1), relaytest.ID(2), relaytest.ID(3))
	send := func(want int) {
		t.Helper()
		receive(t, n, start, 3, frame(3, 9, 500))
		if o, to := n.Send(start, frame(0, 9, 0), zeros[:100]); o != forward.Queued || relaytest.Index(to) != want {
			t.Errorf("a frame is %v for node %d, want node %d", o, relaytest.Index(to), want)
		}
	}
	send(1)
	n.NeighborDown(relaytest.ID(1))
	if s := n.Stats(); s.Dropped != 2 || n.Held() != 0 || n.Waiting() != 0 {
		t.Errorf("%d frames are lost with their neighbor, want 2, %d bytes are held", s.Dropped, n.Held())
	}
	n.NeighborDown(relaytest.ID(1))
	send(2)
	n.NeighborUp(relaytest.ID(1))
	send(1)
	n.NeighborUp(relaytest.ID(1)) // Its link is replaced.
	send(1)
	if one, two := len(take(n, start, 1)), len(take(n, start, 2)); one != 2 || two != 2 || n.Held() != 0 {
		t.Errorf("%d and %d frames leave, want 2 and 2; %d bytes are held", one, two, n.Held())
	}
	n.NeighborDown(relaytest.ID(1))
	n.NeighborDown(relaytest.ID(2))
	if o, _ := n.Send(start, frame(0, 9, 0), zeros[:100]); o != forward.NoRoute {
		t.Errorf("without neighbors a frame is %v", o)
	}
	if _, ok := n.Next(start, relaytest.ID(1)); ok {
		t.Error("there is a frame for a neighbor that has gone")
	}
}

// Frames that wait longer than AgeMax are dropped. A packet that is sent much later than the first one of a frame gets another frame.
func TestAge(t *testing.T) {
	n := newNode(t, relaytest.ID(0), direct{}, relaytest.ID(1), relaytest.ID(2))
	ms := func(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }
	receive(t, n, ms(0), 2, frame(2, 1, 10))
	n.Send(ms(0), frame(0, 1, 0), zeros[:20])
	n.Send(ms(300), frame(0, 1, 0), zeros[:30])
	receive(t, n, ms(300), 2, frame(2, 1, 40))
	got := take(n, ms(501), 1)
	if len(got) != 2 || len(got[0].Payload)+len(got[1].Payload) != 2+30+40 || n.Stats().Dropped != 2 || n.Held() != 0 {
		t.Errorf("after 501 ms %d frames leave and %d are dropped, want 2 and 2; %d bytes are held", len(got), n.Stats().Dropped, n.Held())
	}
	receive(t, n, ms(1000), 2, frame(2, 1, 10))
	if got := take(n, ms(1500), 1); len(got) != 1 {
		t.Error("a frame does not leave after 500 ms")
	}
}

// Own packets for the same node on the same path travel together, in order, up to PayloadMax. Frames of others stay as they are.
func TestCoalescing(t *testing.T) {
	n := newNode(t, relaytest.ID(0), via{relaytest.ID(1)}, relaytest.ID(1), relaytest.ID(2))
	want := make(map[int][]byte) // the packets to each node
	send := func(to int, salt uint8, packet string) {
		t.Helper()
		f := forward.Frame{Kind: forward.Packets, Salt: salt, Source: relaytest.ID(0), Destination: relaytest.ID(to)}
		b := []byte(packet)
		if o, _ := n.Send(start, f, b); o != forward.Queued {
			t.Errorf("a packet is %v", o)
		}
		clear(b) // QUIC reuses its memory.
		want[to] = append(want[to], packet...)
	}
	var frames []string
	expect := func(f ...string) {
		t.Helper()
		for _, f := range take(n, start, 1) {
			text := ""
			for packet, rest := forward.CutPacket(f.Payload); packet != nil; packet, rest = forward.CutPacket(rest) {
				text += string(packet) + " "
			}
			frames = append(frames, text)
			n.Free(f.Payload)
		}
		if !slices.Equal(frames, f) {
			t.Errorf("got the frames %q, want %q", frames, f)
		}
		frames = nil
	}
	send(8, 0, "a")
	send(8, 0, "b")
	send(8, 0, "c")
	send(9, 0, "d")
	send(9, 4, "e")
	send(9, 4, "f")
	send(8, 0, "g")
	n.Send(start, forward.Frame{Kind: forward.Question, Source: relaytest.ID(0), Destination: relaytest.ID(8), Payload: forward.AppendPacket(nil, []byte("?"))}, nil)
	send(8, 0, "h")
	expect("a b c ", "d ", "e f ", "g ", "? ", "h ")
	expect()

	receive(t, n, start, 2, forward.Frame{Kind: forward.Packets, Hops: 1, Source: relaytest.ID(0), Destination: relaytest.ID(8), Payload: forward.AppendPacket(nil, []byte("own, back"))})
	send(8, 0, "i")
	expect("own, back ", "i ")

	packet := strings.Repeat("x", 1280)
	for range 13 {
		send(8, 0, packet)
	}
	expect(strings.Repeat(packet+" ", 12), packet+" ")
	var got []byte
	for i := range 5000 {
		send(8, 0, string([]byte{byte(i), byte(i >> 8)}))
	}
	want[8] = want[8][len(want[8])-10_000:]
	for _, f := range take(n, start, 1) {
		if len(f.Payload) > forward.PayloadMax {
			t.Errorf("a payload of %d bytes", len(f.Payload))
		}
		for packet, rest := forward.CutPacket(f.Payload); packet != nil; packet, rest = forward.CutPacket(rest) {
			got = append(got, packet...)
		}
	}
	if !bytes.Equal(got, want[8]) {
		t.Errorf("the packets in %d bytes differ from those in %d bytes that were sent", len(got), len(want[8]))
	}
}
