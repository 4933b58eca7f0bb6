package forward_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
)

// TestAnswersAreBounded: a neighbor that gives no credit, and whose frames are answered, does not fill the memory with answers. Other frames
// of the node wait beside them, and all are sent when credit arrives.
func TestAnswersAreBounded(t *testing.T) {
	const frames = 100_000
	now := time.Unix(1, 0)
	n, err := forward.New(forward.Config{Self: relaytest.ID(0), Routes: toNeighbor{}, HopLimit: 2})
	if err != nil {
		t.Fatal(err)
	}
	n.NeighborUp(now, relaytest.ID(1))
	before := heap()
	for i := range frames {
		n.Send(now, forward.Frame{
			Kind: []forward.Kind{forward.Ack, forward.HandshakeAck, forward.Abort}[i%3], Source: relaytest.ID(0), Destination: relaytest.ID(1),
			Seq: uint64(i), Payload: make([]byte, 56),
		})
	}
	if grown := heap() - before; grown > 2<<20 {
		t.Errorf("the heap has grown by %d bytes for %d answers that wait, want at most 2 MiB", grown, frames)
	}
	n.Send(now, forward.Frame{Kind: forward.Data, Source: relaytest.ID(0), Destination: relaytest.ID(1), Seq: frames})
	sent, dropped := uint64(0), n.Stats().Dropped
	for out, ok, _ := n.Next(now, relaytest.ID(1)); ok || sent == 0; out, ok, _ = n.Next(now, relaytest.ID(1)) {
		switch {
		case !ok:
			credit := forward.Credit{Class: 1, Bytes: forward.DefaultBuffer}
			if _, err := n.Credit(now, relaytest.ID(1), credit); err != nil {
				t.Fatal(err)
			}
		case out.Credit.Bytes == 0:
			sent++
			if _, err := n.Credit(now, relaytest.ID(1), forward.Credit{Class: 1, Bytes: uint32(out.Frame.Charge())}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if sent == 0 || sent+dropped != frames+1 {
		t.Errorf("%d frames are sent and %d dropped, want %d together", sent, dropped, frames+1)
	}
	n.Send(now, forward.Frame{Kind: forward.Ack, Source: relaytest.ID(0), Destination: relaytest.ID(1)})
	if out, ok, _ := n.Next(now, relaytest.ID(1)); !ok || out.Frame.Kind != forward.Ack {
		t.Errorf("after the others have been sent, the next answer is not: %v", ok)
	}
}

// toNeighbor is the route to a destination that is a neighbor.
type toNeighbor struct{}

// NextHops implements [forward.Routes].
func (toNeighbor) NextHops(destination membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	return append(hops, destination)
}

// heap returns the size of the heap.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
