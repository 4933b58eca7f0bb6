package transporttest

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// testSenderClose: Write after Close fails, and other pipes continue.
func testSenderClose(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	x.send(s, x.data.stream(0), 0, 1000)
	x.must(s.Close(), "close the sender")
	n, err := s.Write([]byte{1})
	if n != 0 {
		x.fatal("Write on a closed pipe returns %d bytes", n)
	}
	x.wantError(err, transport.ErrClosed, "Write on a closed pipe")
	x.receive(r, x.data.stream(0), 0, 1000)
	x.wantEOF(r)
	x.pipe(a, b)
}

// testSenderCloseInterrupts: Close interrupts the current Write, and the reader gets
// exactly the bytes that Write reports.
func testSenderCloseInterrupts(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	d := x.data.stream(0)
	off := x.fillUp(s, d)
	writer := x.background(func() {
		n, err := s.Write(d.bytes(off, 4<<20))
		off += n
		x.wantError(err, transport.ErrClosed, "Write interrupted by Close")
	})
	time.Sleep(aWhile)
	x.must(s.Close(), "close the sender")
	x.await(writer, "return of a Write whose pipe was closed")
	x.receive(r, d, 0, off)
	x.wantEOF(r)
	x.pipe(a, b)
}

// testReceiverClose: after Close of the receiver, Write fails, and other pipes continue.
func testReceiverClose(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	x.must(r.Close(), "close the receiver")
	_, err := r.Read(make([]byte, 1))
	x.wantError(err, transport.ErrClosed, "Read on a closed receiver")
	n, err := r.ReadFunc(1, func([]byte) {})
	if n != 0 {
		x.fatal("ReadFunc on a closed receiver consumes %d bytes", n)
	}
	x.wantError(err, transport.ErrClosed, "ReadFunc on a closed receiver")
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := s.Write(make([]byte, 100)); err != nil {
			x.wantBrokenPipe(err)
			break
		}
		if time.Since(start) > promptly {
			x.fatal("Write still succeeds %v after the receiver was closed", promptly)
		}
	}
	x.must(s.Close(), "close the sender")
	x.pipe(a, b)
	x.pipe(b, a)
}

// testReceiverCloseInterrupts: Close interrupts the current read, and the blocked Write of
// the peer.
func testReceiverCloseInterrupts(x *check) {
	a, b := x.pair()
	_, r := x.pipe(a, b)
	reader := x.background(func() {
		_, err := r.Read(make([]byte, 1))
		x.wantError(err, transport.ErrClosed, "Read interrupted by Close")
	})
	time.Sleep(aWhile)
	x.must(r.Close(), "close the receiver")
	x.await(reader, "return of a Read whose pipe was closed")

	s, r := x.pipe(a, b)
	taken := x.fillUp(s, x.data.stream(0))
	writer := x.background(func() {
		n, err := s.Write(make([]byte, 8<<20))
		if n == 8<<20 {
			x.fatal("after %d unread bytes, a Write of 8 MiB succeeds: %v", taken, err)
		}
		x.wantBrokenPipe(err)
	})
	time.Sleep(aWhile)
	x.must(r.Close(), "close the receiver")
	x.await(writer, "return of a Write whose reader has closed")
	x.pipe(a, b)
}

// wantBrokenPipe checks the error of a Write after its reader has closed.
func (x *check) wantBrokenPipe(err error) {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, transport.ErrClosed) {
		x.tb.Helper()
		x.fatal("Write to a closed receiver: got error %v, want one that names the reader as the cause", err)
	}
}

// testConnClose: Close ends the conn on both sides, and their errors say which side closed
// it.
func testConnClose(x *check) {
	a, b := x.pair()
	as, br := x.pipe(a, b)
	bs, ar := x.pipe(b, a)
	x.must(a.Close(), "close a conn")
	x.wantEnd(a, transport.ErrClosed)
	x.wantEnd(b, transport.ErrPeerClosed)
	x.wantEndedPipes(a, as, ar, transport.ErrClosed)
	x.wantEndedPipes(b, bs, br, transport.ErrPeerClosed)
	x.must(a.Close(), "close a conn again")

	c, d := x.pair()
	x.pipe(c, d)
}

// wantEnd waits for the end of a conn and checks its reason.
func (x *check) wantEnd(c transport.Conn, want error) {
	x.tb.Helper()
	x.await(c.Done(), "end of a conn")
	x.wantError(c.Err(), want, "Err of an ended conn")
}

// wantEndedPipes checks that every call on an ended conn returns the reason.
func (x *check) wantEndedPipes(c transport.Conn, s transport.Sender, r transport.Receiver, want error) {
	x.tb.Helper()
	_, err := s.Write(make([]byte, 10))
	x.wantError(err, want, "Write after the end of the conn")
	_, err = s.Write(make([]byte, 1<<20))
	x.wantError(err, want, "large Write after the end of the conn")
	_, err = r.Read(make([]byte, 10))
	x.wantError(err, want, "Read after the end of the conn")
	_, err = r.ReadFunc(10, func([]byte) {})
	x.wantError(err, want, "ReadFunc after the end of the conn")
	_, err = c.OpenPipe(x.tb.Context())
	x.wantError(err, want, "OpenPipe after the end of the conn")
	_, err = c.AcceptPipe(x.tb.Context())
	x.wantError(err, want, "AcceptPipe after the end of the conn")
	x.must(s.Close(), "close a sender after the end of its conn")
	x.must(r.Close(), "close a receiver after the end of its conn")
}

// blockedCalls are calls that block on a conn until it ends.
type blockedCalls struct {
	calls map[string]func() error
	want  error // returned by all of them
	done  []<-chan struct{}
}

// prepare prepares a blocking call of each kind on c. While these block, the other side
// must not read, write or open a pipe.
func (x *check) prepare(c, peer transport.Conn, want error) *blockedCalls {
	x.tb.Helper()
	s, _ := x.pipe(c, peer)
	_, r := x.pipe(peer, c)
	_, rf := x.pipe(peer, c)
	x.fillUp(s, x.data.stream(0))
	return &blockedCalls{want: want, calls: map[string]func() error{
		"Write":      func() error { _, err := s.Write(make([]byte, 16<<20)); return err },
		"Read":       func() error { _, err := r.Read(make([]byte, 10)); return err },
		"ReadFunc":   func() error { _, err := rf.ReadFunc(10, func([]byte) {}); return err },
		"AcceptPipe": func() error { _, err := c.AcceptPipe(x.tb.Context()); return err },
	}}
}

// block starts the calls and gives them time to block.
func (x *check) block(calls ...*blockedCalls) {
	for _, b := range calls {
		for name, call := range b.calls {
			b.done = append(b.done, x.background(func() {
				x.wantError(call(), b.want, "%s during the end of the conn", name)
			}))
		}
	}
	time.Sleep(aWhile)
}

func (x *check) awaitAll(b *blockedCalls, limit time.Duration) {
	x.tb.Helper()
	for _, done := range b.done {
		x.awaitWithin(done, limit, "return of a blocked call")
	}
}

// testConnCloseReturnsBlockedCalls: when a conn ends, its blocked calls return, on both
// sides.
func testConnCloseReturnsBlockedCalls(x *check) {
	a, b := x.pair()
	own := x.prepare(a, b, transport.ErrClosed)
	peer := x.prepare(b, a, transport.ErrPeerClosed)
	x.block(own, peer)
	x.must(a.Close(), "close a conn")
	x.awaitAll(own, promptly)
	x.awaitAll(peer, promptly)
	x.wantEnd(a, transport.ErrClosed)
	x.wantEnd(b, transport.ErrPeerClosed)
}

// testFirstCloseDecides: a Close after the end changes nothing.
func testFirstCloseDecides(x *check) {
	a, b := x.pair()
	x.must(b.Close(), "close a conn")
	x.wantEnd(b, transport.ErrClosed)
	x.wantEnd(a, transport.ErrPeerClosed)
	x.must(a.Close(), "close an ended conn")
	x.must(b.Close(), "close a conn again")
	x.wantError(a.Err(), transport.ErrPeerClosed, "Err after a second Close")
	x.wantError(b.Err(), transport.ErrClosed, "Err after a second Close")
}

// testTransportClose: Close ends all conns and calls of its transport, and no others.
func testTransportClose(x *check) {
	a, b := x.pair()
	done := make(chan transport.Conn, 1)
	x.spawn(func() { done <- x.accept(0) })
	c := x.dial(2, 0) // accepted by the transport that closes
	ac := <-done
	peer := x.prepare(b, a, transport.ErrPeerClosed)
	own := x.prepare(a, b, transport.ErrClosed)
	accepting := x.background(func() {
		_, err := x.cluster.Transports[0].Accept(x.tb.Context())
		x.wantError(err, transport.ErrClosed, "Accept of a transport that closes")
	})
	x.block(own, peer)
	x.must(x.cluster.Transports[0].Close(), "close a transport")
	x.await(accepting, "return of Accept")
	x.awaitAll(own, promptly)
	x.awaitAll(peer, promptly)
	x.wantEnd(a, transport.ErrClosed)
	x.wantEnd(ac, transport.ErrClosed)
	x.wantEnd(b, transport.ErrPeerClosed)
	x.wantEnd(c, transport.ErrPeerClosed)

	_, err := x.cluster.Transports[0].Accept(x.tb.Context())
	x.wantError(err, transport.ErrClosed, "Accept of a closed transport")
	_, err = x.cluster.Transports[0].Dial(x.tb.Context(), x.cluster.Transports[1].Addr(), "")
	x.wantError(err, transport.ErrClosed, "Dial of a closed transport")
	x.must(x.cluster.Transports[0].Close(), "close a transport again")

	living := x.background(func() { x.accept(1) })
	x.dial(2, 1)
	x.await(living, "Accept after another transport was closed")
}

// testKill: within a second after the death of a process, the conns of its peers end.
func testKill(x *check) {
	x.need("kill", x.cluster.Kill != nil, "its factory has no Cluster.Kill")
	a, b := x.pair()
	blocked := x.prepare(a, b, transport.ErrPeerGone)
	bystander := x.background(func() {
		c := x.accept(0)
		r := x.acceptPipe(c)
		x.receive(r, x.data.stream(9), 0, 2000)
	})
	s := x.open(x.dial(2, 0))
	x.send(s, x.data.stream(9), 0, 1000)

	x.block(blocked)
	x.cluster.Kill(1)
	const limit = time.Second
	x.awaitWithin(a.Done(), limit, "end of the conn to a dead process")
	x.awaitAll(blocked, limit)
	x.wantError(a.Err(), transport.ErrPeerGone, "Err after the death of the peer")

	x.send(s, x.data.stream(9), 1000, 1000)
	x.await(bystander, "traffic between the other processes")
	ctx, cancel := x.within(2 * time.Second)
	defer cancel()
	if _, err := x.cluster.Transports[0].Dial(ctx, x.cluster.Transports[1].Addr(), ""); err == nil {
		x.fatal("the dial of a dead process succeeds")
	}
}

// drain reads a pipe to its end, and compares it with the stream.
func (x *check) drain(r transport.Receiver, d stream) {
	buf := make([]byte, 10_000)
	for off := 0; ; {
		n, err := r.Read(buf)
		x.same(d, buf[:n], off)
		off += n
		if err == io.EOF || err != nil && isEnd(err) {
			return
		}
		x.must(err, "read during the end of conns")
	}
}

// accepted reports whether Accept or AcceptPipe succeeded. It fails if the error does not
// follow from the end of the conn or of the context.
func (x *check) accepted(err error, doing string) bool {
	if err == nil {
		return true
	}
	if !isEnd(err) && !errors.Is(err, context.Canceled) {
		x.fatal("%s: %v", doing, err)
	}
	return false
}
