package link

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

func (l *Link) expectStalls(t *testing.T, when string, count uint64, still time.Duration) {
	t.Helper()
	if c, s := l.Stalls(); c != count || s != still {
		t.Errorf("%s: %d stalls, the last for %v; want %d and %v", when, c, s, count, still)
	}
}

// TestStall: a link stalls after a second in which a payload waits and no byte moves, and no longer when one has moved.
func TestStall(t *testing.T) {
	x := newApart(t)
	bulk := newValve(nil, wire.PreambleSize)
	x.ba = &wrappedConn{Conn: x.ba, make: func(i int, s transport.Sender) transport.Sender {
		if i == 0 {
			return s // of the data lane
		}
		bulk.Sender = s
		return bulk
	}}
	x.start(1, 1)
	t.Cleanup(func() { bulk.allow(1 << 40) })
	agree(t, x.a, x.b)
	for range 3 {
		x.a.CheckStall(time.Minute)
	}
	x.a.expectStalls(t, "idle", 0, 0)

	load := send(x.a, x.b, 2*wire.SegmentMax, 1)
	bulk.waitStuck()
	x.a.CheckStall(time.Minute) // The bytes may have moved until now.
	x.a.CheckStall(trace.StalledAfter - 1)
	x.a.expectStalls(t, "for almost a second", 0, 0)
	x.a.CheckStall(1)
	x.a.expectStalls(t, "after a second", 1, trace.StalledAfter)
	x.a.CheckStall(time.Second)
	x.a.expectStalls(t, "after two seconds", 1, 2*time.Second)
	bulk.allow(wire.SegmentMax + wire.FrameSizeMax)
	for x.b.Traffic().Received < wire.SegmentMax {
		time.Sleep(time.Millisecond)
	}
	bulk.waitStuck()
	for moved := uint64(0); ; time.Sleep(time.Millisecond) { // until the writer has counted the segment
		now := x.a.Traffic().moved
		if now == moved && now >= wire.SegmentMax {
			break
		}
		moved = now
	}
	x.a.CheckStall(time.Minute)
	x.a.expectStalls(t, "after a byte", 1, 0)
	x.a.CheckStall(time.Minute)
	x.a.expectStalls(t, "when it stalls again", 2, time.Minute)
	bulk.allow(1 << 40)
	load.wait(t)
	agree(t, x.a, x.b)
	x.a.expectStalls(t, "at the end, without a check", 2, 0)
}

// TestStallPending: a link without a connection stalls if a frame needs one.
func TestStallPending(t *testing.T) {
	idle := NewCommon(newHandler(), Config{}, nil).NewPending(1)
	idle.exchange() // as after an earlier connection
	idle.CheckStall(time.Minute)
	idle.CheckStall(time.Minute)
	idle.expectStalls(t, "when nothing waits", 0, 0)
	l := NewCommon(newHandler(), Config{}, nil).NewPending(1)
	l.CheckStall(time.Minute)
	l.Closed(make([]byte, 10)) // It needs no connection.
	l.CheckStall(time.Minute)
	l.CheckStall(time.Minute)
	l.expectStalls(t, "without a frame that needs a connection", 0, 0)
	l.Credit().Take(wire.Messages, 8)
	l.SendMessage(wire.Message{}, make([]byte, 8))
	l.CheckStall(time.Minute)
	l.CheckStall(time.Minute)
	if n, still := l.Stalls(); n != 1 || still == 0 || l.Connections() != 0 {
		t.Errorf("%d stalls, for %v, and %d connections; want a stall without a connection", n, still, l.Connections())
	}
}
