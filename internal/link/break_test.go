package link

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A cutSender closes its connection within its first long write, when the peer has read the first half of it.
type cutSender struct {
	transport.Sender
	conn transport.Conn
	read *atomic.Uint64 // by the peer
}

func (s cutSender) Write(p []byte) (int, error) {
	if len(p) < wire.PayloadMax {
		return s.Sender.Write(p)
	}
	before := s.read.Load()
	n, _ := s.Sender.Write(p[:len(p)/2])
	for s.read.Load() < before+uint64(n) && s.conn.Err() == nil {
		runtime.Gosched()
	}
	s.conn.Close()
	return n, transport.ErrClosed
}

// TestCreditOfCutMessages: connections break within a message until its parts exceed the credit. It then arrives, and has used its credit
// once.
func TestCreditOfCutMessages(t *testing.T) {
	const cuts = creditBytes/wire.PayloadMax + 1
	p := newPendingPair(t)
	got := make(chan int, 1)
	p.hb.message = func(_ wire.Message, b []byte) { got <- len(b) }
	if !p.a.Credit().Take(wire.Messages, wire.PayloadMax) {
		t.Fatal("no credit")
	}
	p.a.SendMessage(wire.Message{}, make([]byte, wire.PayloadMax))
	for range cuts {
		ca, cb := conns(t)
		cut := &wrappedConn{Conn: ca, make: func(_ int, s transport.Sender) transport.Sender {
			return cutSender{s, ca, &p.b.exchange().read}
		}}
		if atA, atB := connect(t, p.a, p.b, cut, cb, admitAll); atA != nil || atB != nil {
			t.Fatal(atA, atB)
		}
		p.awaitPending(t)
	}
	p.connect(t)
	soon(t, "the message", func() {
		select {
		case <-got:
		case err := <-p.hb.ends:
			t.Errorf("the link ends with %v, want the message", err)
		}
	})
	if n := p.b.exchange().credit.unread[wire.Messages].Load(); n != wire.PayloadMax+frameCharge {
		t.Errorf("%d bytes of credit are used, want %d", n, wire.PayloadMax+frameCharge)
	}
}

// TestCutClaim: connections break within a claimed message. It is claimed once, and its sink gets all of it; without a sink it is discarded.
// The next message is another one.
func TestCutClaim(t *testing.T) {
	for name, discards := range map[string]bool{"sink": false, "discarded": true} {
		t.Run(name, func(t *testing.T) {
			p := newPendingPair(t)
			filled, got := make(chan struct{}, 1), make(chan int64, 1)
			sink := &Sink{Dst: make([]byte, 1000), More: [][]byte{make([]byte, wire.PayloadMax-1000)}, Owner: owner(func(*Sink) { filled <- struct{}{} })}
			var claims atomic.Int32
			var begun atomic.Uint64
			read, cuts := &p.b.exchange().read, 3
			if discards { // These bytes are counted at the end of the message.
				read, cuts = &begun, 1
			}
			p.hb.claim = func(l *Link, m wire.Message) (uint64, bool) {
				begun.Add(wire.PayloadMax)
				if claims.Add(1) > 1 || discards {
					return 0, m.Tag == 1
				}
				return l.Claim(sink), true
			}
			p.hb.message = func(m wire.Message, _ []byte) { got <- m.Tag }
			for tag := range int64(2) {
				if !p.a.Credit().Take(wire.Messages, wire.PayloadMax) {
					t.Fatal("no credit")
				}
				p.a.SendMessage(wire.Message{Tag: 1 + tag}, numbers(wire.PayloadMax))
			}
			for range cuts {
				ca, cb := conns(t)
				cut := &wrappedConn{Conn: ca, make: func(_ int, s transport.Sender) transport.Sender {
					return cutSender{s, ca, read}
				}}
				if atA, atB := connect(t, p.a, p.b, cut, cb, admitAll); atA != nil || atB != nil {
					t.Fatal(atA, atB)
				}
				p.awaitPending(t)
			}
			p.connect(t)
			soon(t, "the next message", func() {
				if tag := <-got; tag != 2 {
					t.Errorf("message %d was not claimed, want 2", tag)
				}
			})
			if n := claims.Load(); n != 2 {
				t.Errorf("%d messages were claimed, want 2", n)
			}
			if discards {
				return
			}
			soon(t, "the claimed message", func() { <-filled })
			if !bytes.Equal(append(sink.Dst, sink.More[0]...), numbers(wire.PayloadMax)) {
				t.Error("the payload of the claimed message differs")
			}
		})
	}
}

// TestBreakBeforeTheSecondConnection: the connection ends while this side awaits the second one. The link is pending again, and a Close that
// waits goes on over the next connection.
func TestBreakBeforeTheSecondConnection(t *testing.T) {
	for name, closes := range map[string]bool{"open": false, "closing": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPendingPair(t)
				p.a.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
				p.a.Ping()
				closed := make(chan bool, 1)
				if closes {
					go func() { closed <- p.a.Close(t.Context()) }()
				}
				synctest.Wait()
				ca, cb := conns(t)
				bulk, _ := conns(t)
				accepted := make(chan error, 1)
				go func() {
					await := func(ctx context.Context) (transport.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
					accepted <- p.a.Accept(t.Context(), ca, Config{Await: await}, admitAll)
				}()
				if atB, atA := p.b.Connect(t.Context(), cb, Config{Bulk: bulk}), <-accepted; atA != nil || atB != nil {
					t.Fatal(atA, atB)
				}
				synctest.Wait()
				cb.Close()
				synctest.Wait()
				if !p.a.IsPending() || p.a.IsOver() {
					t.Fatalf("the link has ended with %v, want a pending link", p.a.Err())
				}
				p.connect(t)
				if closes && !<-closed {
					t.Error("Close ends before the peer has read everything")
				}
			})
		})
	}
}

// TestEndOfAnEndedConnection: an error of a pipe is no fault of the lane if the attachment has ended.
func TestEndOfAnEndedConnection(t *testing.T) {
	ca, _ := conns(t)
	a := newAttachment(nil, newPath(ca, 1), Config{})
	a.cancel()
	for range 100 {
		if !a.awaitEnd(a.first, errors.New("boom")) {
			t.Fatal("the connection seems to stand, want that it has ended")
		}
	}
}

// TestFinishedBesideABreak: the peer needs no more of a transfer, and the connection ends while a segment is fetched. The transfer is delivered.
func TestFinishedBesideABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newKeptPair(t)
		close(p.ca.gate)
		fetch := make(chan []byte)
		s := &Sink{Dst: make([]byte, 10), Owner: ignore{}}
		x := &Transfer{Grant: p.b.Grant(s), Data: make([]byte, 10), Owner: make(signal, 1), Fetch: func(int, int) []byte { return <-fetch }}
		p.a.Deliver(x)
		synctest.Wait()
		if err := p.a.exchange().bulk.finished(x.Grant); err != nil {
			t.Fatal(err)
		}
		p.cb.Close()
		synctest.Wait()
		fetch <- make([]byte, 10)
		synctest.Wait()
		select {
		case <-x.Owner.(signal):
		default:
			t.Error("the transfer is not delivered")
		}
		p.b.Ungrant(s)
	})
}

// A failingSender sends everything, lets the peer acknowledge it, and returns an error.
type failingSender struct {
	transport.Sender
	of    *outbox
	fails *atomic.Bool
}

func (s failingSender) Write(p []byte) (int, error) {
	if !s.fails.Load() {
		return s.Sender.Write(p)
	}
	end, _ := s.of.position()
	return 0, errors.Join(s.of.acknowledged(end), transport.ErrClosed)
}

// TestAcknowledgedByAFailedWrite: the peer may have acknowledged bytes of a write that fails. That breaks the connection, and not the link.
func TestAcknowledgedByAFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPendingPair(t)
		ca, cb := conns(t)
		var fails atomic.Bool
		failing := &wrappedConn{Conn: ca, make: func(_ int, s transport.Sender) transport.Sender {
			return failingSender{s, &p.a.exchange().control, &fails}
		}}
		if atA, atB := connect(t, p.a, p.b, failing, cb, admitAll); atA != nil || atB != nil {
			t.Fatal(atA, atB)
		}
		synctest.Wait()
		fails.Store(true)
		p.a.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
		p.awaitPending(t)
		synctest.Wait()
		if p.a.IsOver() {
			t.Errorf("the link ends with %v, want a pending link", p.a.Err())
		}
	})
}
