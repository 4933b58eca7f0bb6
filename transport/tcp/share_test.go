package tcp

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// openPaired opens a paired pipe and writes its first byte.
func openPaired(t *testing.T, from *conn, first byte) *sender {
	t.Helper()
	return openPipe(t, from.OpenPaired, first)
}

// openPair opens a pipe from a to b and its partner.
func openPair(t *testing.T, a, b *conn) (ab *sender, fromA *receiver, ba *sender, fromB *receiver) {
	t.Helper()
	ab = openPaired(t, a, 1)
	fromA = acceptPipe(t, b, 1)
	ba = openPaired(t, b, 2)
	fromB = acceptPipe(t, a, 2)
	return ab, fromA, ba, fromB
}

func readByte(t *testing.T, r transport.Receiver) byte {
	t.Helper()
	var b [1]byte
	r.SetReadDeadline(time.Now().Add(soon))
	if _, err := io.ReadFull(r, b[:]); err != nil {
		t.Fatal(err)
	}
	return b[0]
}

// eachOrder runs a test with either side as the one that dialed.
func eachOrder(t *testing.T, test func(t *testing.T, first, second *conn)) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		for name, swap := range map[string]bool{"dialed first": false, "accepted first": true} {
			t.Run(name, func(t *testing.T) {
				nodes := newTestNodes(t, 2, cfg)
				dialed, accepted := connect(t, nodes[0], nodes[1])
				if swap {
					dialed, accepted = accepted, dialed
				}
				test(t, dialed, accepted)
			})
		}
	})
}

// TestPairShares checks that two pipes share a socket, one in each direction, and that
// one can end before the other.
func TestPairShares(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		ab, fromA, ba, fromB := openPair(t, a, b)
		if ab.ps != fromB.ps || ba.ps != fromA.ps {
			t.Fatal("they have separate sockets")
		}
		ab.Close()
		if _, err := fromA.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
		eventually(t, "the end of a half", func() bool { return a.sender(ab.id) == nil })
		for i := range byte(100) {
			ba.Write([]byte{i})
			if got := readByte(t, fromB); got != i {
				t.Fatalf("read %d, want %d", got, i)
			}
		}
		fromB.Close() // before its end
		eventually(t, "the end of the other half", func() bool { return b.sender(ba.id) == nil })
		if _, err := ba.Write([]byte{1}); err == nil {
			t.Error("a write succeeded on an abandoned pipe")
		}
		for _, ps := range []*pipeSocket{ab.ps, ba.ps} {
			eventually(t, "the end of the socket", func() bool { return ps.socket.SetDeadline(time.Time{}) != nil })
		}
		for _, c := range []*conn{a, b} {
			if c.mu.Lock(); len(c.shared)+len(c.proposals) > 0 {
				t.Errorf("%d shared sockets and %d proposals are left", len(c.shared), len(c.proposals))
			}
			c.mu.Unlock()
		}
	})
}

// TestPairAbandonedUnread checks that an abandoned pipe with unread data does not affect
// its partner.
func TestPairAbandonedUnread(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		ab, fromA, ba, fromB := openPair(t, a, b)
		clog(t, ab, func(n int) []byte { return make([]byte, n) })
		fromA.Close()
		want := []byte("sent afterwards")
		if _, err := ba.Write(want); err != nil {
			t.Fatal(err)
		}
		ba.Close()
		fromB.SetReadDeadline(time.Now().Add(soon))
		if got, err := io.ReadAll(fromB); err != nil || string(got) != string(want) {
			t.Errorf("read %q, %v", got, err)
		}
		if a.Err() != nil || b.Err() != nil {
			t.Errorf("the conn has ended: %v, %v", a.Err(), b.Err())
		}
	})
}

// TestPairAfterEnd checks that the second pipe has a separate socket if the first has ended.
func TestPairAfterEnd(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		s := openPaired(t, a, 1)
		r := acceptPipe(t, b, 1)
		s.Close()
		if _, err := r.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
		openPaired(t, b, 2)
		acceptPipe(t, a, 2)
	})
}

// TestPairWhileFirstEnds checks that the second pipe works if the first ends while it is
// opened.
func TestPairWhileFirstEnds(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		for i := range 40 {
			s := openPaired(t, a, 1)
			r := acceptPipe(t, b, 1)
			var both sync.WaitGroup
			both.Go(func() {
				time.Sleep(time.Duration(rand.IntN(600)) * time.Microsecond)
				if i%2 == 0 {
					s.Close()
					r.Read(make([]byte, 1))
				}
				r.Close()
			})
			back := openPaired(t, b, 2)
			other := acceptPipe(t, a, 2)
			both.Wait()
			back.Write([]byte{3})
			if got := readByte(t, other); got != 3 {
				t.Fatalf("read %d, want 3", got)
			}
			other.Close()
		}
		eventually(t, "the end of all pipes", func() bool { return len(a.pipeQuota) == 0 && len(b.pipeQuota) == 0 })
	})
}

// TestCancelOpenPaired checks that cancelling one of two pipes that are opened at once
// leaves nothing of it, and the other works.
func TestCancelOpenPaired(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		for i := range 60 {
			var opened [2]transport.Sender
			var both sync.WaitGroup
			for k, from := range []*conn{a, b} {
				both.Go(func() {
					limit := soon
					if i%2 == k {
						limit = time.Duration(rand.IntN(2000)) * time.Microsecond
					}
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					s, err := from.OpenPaired(ctx)
					if err == nil {
						_, err = s.Write([]byte{byte(i)})
					}
					if err != nil && (limit == soon || !errors.Is(err, context.DeadlineExceeded)) {
						t.Errorf("%d: %v", i, err)
					}
					if err == nil {
						opened[k] = s
					}
				})
			}
			both.Wait()
			for k, to := range []*conn{b, a} {
				if opened[k] == nil {
					continue
				}
				r := acceptPipe(t, to, byte(i))
				r.Close()
			}
		}
		eventually(t, "the end of the attempts", func() bool { return len(a.pipeQuota) == 0 && len(b.pipeQuota) == 0 })
		for _, c := range []*conn{a, b} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if _, err := c.AcceptPipe(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("AcceptPipe of abandoned pipes: %v", err)
			}
			cancel()
		}
	})
}

// TestPairEndsWithConn checks that the end of a conn interrupts the reader and the writer
// of a shared socket with its error.
func TestPairEndsWithConn(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		ab, _, _, fromB := openPair(t, a, b)
		clog(t, ab, func(n int) []byte { return make([]byte, n) })
		ab.SetWriteDeadline(time.Time{})
		fromB.SetReadDeadline(time.Time{})
		errs := make(chan error, 2)
		go func() {
			var err error
			for err == nil { // On a busy machine, clog returns before the socket is full.
				_, err = ab.Write(make([]byte, 1<<20))
			}
			errs <- err
		}()
		go func() {
			_, err := fromB.Read(make([]byte, 1))
			errs <- err
		}()
		time.Sleep(10 * time.Millisecond)
		a.Close()
		for range 2 {
			select {
			case err := <-errs:
				if !errors.Is(err, transport.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
			case <-time.After(soon):
				t.Fatal("the end of the conn does not interrupt it")
			}
		}
	})
}

// newWantedSender registers a paired pipe of c without requesting a socket.
func newWantedSender(c *conn) *sender {
	c.pipeQuota <- struct{}{}
	return c.addSender(true)
}

// TestPairArrivesTwice checks that the sockets of both pipes of a pair may arrive at
// once.
func TestPairArrivesTwice(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	_, c := connect(t, nodes[0], nodes[1])
	for range 500 {
		s := newWantedSender(c)
		r, err := c.addReceiver(s.id ^ 1)
		if err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() { c.settleShared(s.id, nil) })
		both.Go(func() { c.settleShared(r.id, nil) })
		both.Wait()
		c.removeSender(s)
		c.removeReceiver(r)
	}
}

// TestPairDroppedBeforeItArrives checks that a waiter for a shared socket is woken when
// its pipe ends, even if the handshake on this side is not complete.
func TestPairDroppedBeforeItArrives(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	_, c := connect(t, nodes[0], nodes[1])
	s := newWantedSender(c)
	for _, m := range []message{{kind: msgShare, pipe: s.id ^ 1}, {kind: msgDrop, pipe: s.id}} {
		if err := c.handle(m); err != nil {
			t.Fatal(err)
		}
	}
	c.settleShared(s.id, nil)
	eventually(t, "the end of the wait", func() bool { return c.receiver(s.id^1) == nil })
	if c.mu.Lock(); len(c.shared) > 0 {
		t.Errorf("%d shared sockets are left", len(c.shared))
	}
	c.mu.Unlock()
}

// TestPairProposedTwice checks that a proposal of a socket for a pipe that has one does not
// remove the pipe, and that a second proposal is a protocol error.
func TestPairProposedTwice(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	dialed, c := connect(t, nodes[0], nodes[1])
	openPaired(t, dialed, 1)
	r := acceptPipe(t, c, 1)
	s := newWantedSender(c)
	if err := s.commit(); err != nil {
		t.Fatal(err)
	}
	share := message{kind: msgShare, pipe: s.id}
	if err := c.handle(share); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the half", func() bool {
		h := &r.ps.dirs
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.writeEnded
	})
	time.Sleep(10 * time.Millisecond)
	if c.sender(s.id) != s {
		t.Error("the pipe was removed")
	}
	if err := c.handle(share); err == nil {
		t.Error("a socket may be proposed for it again and again")
	}
}

// TestPairDeclined checks that the side that dials does so itself after the peer
// declined.
func TestPairDeclined(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	c, _ := connect(t, nodes[0], nodes[1])
	s := newWantedSender(c)
	if err := c.handle(message{kind: msgCannot, pipe: s.id}); err != nil {
		t.Fatal(err)
	}
	c.dialSender(s)
	if <-s.opened; s.openErr != nil {
		t.Error(s.openErr)
	}
}

// TestCancelOpenPairedStoppedPeer checks that OpenPaired can be cancelled while the peer
// is stopped, and that nothing is left when it continues.
func TestCancelOpenPairedStoppedPeer(t *testing.T) {
	eachOrder(t, func(t *testing.T, a, b *conn) {
		openPaired(t, a, 1)
		acceptPipe(t, b, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		a.mu.Lock()
		go func() {
			_, err := b.OpenPaired(ctx)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		case <-time.After(soon):
			t.Error("it is not given up")
		}
		a.mu.Unlock()
		eventually(t, "the end of the attempt", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.outgoing)+len(a.incoming)+len(a.proposals)+len(b.proposals) == 0
		})
		select {
		case <-a.backlog:
			t.Error("the peer accepts a pipe that was given up")
		default:
		}
		openPaired(t, b, 2)
		acceptPipe(t, a, 2)
	})
}

// TestPairDiscardsAlerts checks that TLS alerts are not mixed into the data of the
// partner.
func TestPairDiscardsAlerts(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	a, b := connect(t, nodes[0], nodes[1])
	s := openPaired(t, a, 1)
	r := acceptPipe(t, b, 1)
	s.ps.records.Write([]byte("an alert"))
	if _, err := s.Write([]byte{2}); err != nil {
		t.Fatal(err)
	}
	if got := readByte(t, r); got != 2 {
		t.Errorf("read %d, want 2", got)
	}
}
