package link

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// agree waits until the counts of both sides of a direction are equal.
func agree(t *testing.T, from, to *Link) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		sent, received := from.Traffic().Sent, to.Traffic().Received
		if sent == received {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d bytes sent and %d received, want the same", sent, received)
		}
	}
}

// The sender counts all bytes, and the receiver the bytes that have arrived.
func TestTraffic(t *testing.T) {
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
	agree(t, x.b, x.a)
	before := x.a.Traffic().Sent
	for _, n := range []int{0, 100, 10_000, wire.PayloadMax} {
		for _, l := range []*Link{x.a, x.b} {
			if !l.Credit().Take(wire.Messages, n) {
				t.Fatal("no credit")
			}
			l.SendMessage(wire.Message{}, filler(n, n))
		}
	}
	agree(t, x.a, x.b)
	agree(t, x.b, x.a)
	if n := x.a.Traffic().Sent - before; n < 10_100+wire.PayloadMax {
		t.Errorf("four messages count as %d bytes", n)
	}

	const held = 5000
	load := send(x.a, x.b, held, 1)
	for limit := time.Now().Add(time.Minute); x.a.Traffic().Sent-x.b.Traffic().Received < held; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%+v sent, %+v received, want %d bytes between them", x.a.Traffic(), x.b.Traffic(), held)
		}
	}
	bulk.allow(1 << 40)
	load.wait(t)
	agree(t, x.a, x.b)
}

// A deafConn accepts only the first pipe of the peer.
type deafConn struct {
	transport.Conn
	accepted bool
}

func (c *deafConn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if !c.accepted {
		c.accepted = true
		return c.Conn.AcceptPipe(ctx)
	}
	select {
	case <-c.Done():
		return nil, c.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestTrafficAfterBreak: the counts of both sides agree after a connection has broken with a preamble or a goodbye that the peer has not read.
func TestTrafficAfterBreak(t *testing.T) {
	for name, before := range map[string]func(l *Link){
		"preamble":                       func(*Link) {},
		"preamble and goodbye":           func(l *Link) { l.Disconnect() },
		"preambles of two lanes":         func(l *Link) { l.OpenBulk() },
		"preambles and goodbyes of both": func(l *Link) { l.OpenBulk(); synctest.Wait(); l.Disconnect() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPendingPair(t)
				ca, cb := conns(t)
				if atB, atA := connect(t, p.b, p.a, &deafConn{Conn: cb}, ca, admitAll); atA != nil || atB != nil {
					t.Fatal(atA, atB)
				}
				synctest.Wait()
				before(p.a)
				synctest.Wait()
				ca.Close()
				p.awaitPending(t)
				p.connect(t)
				close(p.ca.gate)
				for _, l := range []*Link{p.a, p.b} {
					l.Credit().Take(wire.Messages, 1000)
					l.SendMessage(wire.Message{}, make([]byte, 1000))
				}
				synctest.Wait()
				if a, b := p.a.Traffic(), p.b.Traffic(); a.Sent != b.Received || b.Sent != a.Received || a.Sent < 1000 || b.Sent < 1000 {
					t.Errorf("one side has counted %+v, the other %+v, want the same", a, b)
				}
			})
		})
	}
}
