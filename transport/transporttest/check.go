package transporttest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A check is a running subtest. In contrast to testing.T, its methods may be called by all
// goroutines of spawn, and have no effect after the first failure.
type check struct {
	tb      testing.TB
	data    pattern
	cluster Cluster
	group   sync.WaitGroup // the goroutines of spawn

	skipped, reason string // set by the body alone
	atEnd           func() // if not nil, called at the end of the body; set by the body alone

	mu     sync.Mutex
	over   bool          // further reports are ignored
	failed chan struct{} // closed by the first failure
}

func newCheck(tb testing.TB, data pattern, cluster Cluster) *check {
	return &check{tb: tb, data: data, cluster: cluster, failed: make(chan struct{})}
}

// report reports a failure. Only the first one counts, since it may cause the others.
func (x *check) report(format string, args ...any) {
	x.tb.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over {
		return
	}
	x.over = true
	x.tb.Errorf(format, args...)
	close(x.failed)
}

// fatal reports a failure and ends the calling goroutine.
func (x *check) fatal(format string, args ...any) {
	x.tb.Helper()
	x.report(format, args...)
	runtime.Goexit()
}

// end calls atEnd.
func (x *check) end() {
	if x.atEnd != nil {
		x.atEnd()
	}
}

// need ends the subtest unless the transport has a feature.
func (x *check) need(name string, has bool, reason string) {
	if !has {
		x.skipped, x.reason = name, reason
		runtime.Goexit()
	}
}

// spawn runs f on another goroutine. The subtest waits for it.
func (x *check) spawn(f func()) {
	x.group.Go(f)
}

// must fails if err is not nil.
func (x *check) must(err error, doing string, args ...any) {
	if err != nil {
		x.tb.Helper()
		x.fatal("%s: %v", fmt.Sprintf(doing, args...), err)
	}
}

// wantError fails if err does not wrap want.
func (x *check) wantError(err, want error, doing string, args ...any) {
	if !errors.Is(err, want) {
		x.tb.Helper()
		x.fatal("%s: got error %v, want %v", fmt.Sprintf(doing, args...), err, want)
	}
}

// await fails if c is not closed promptly.
func (x *check) await(c <-chan struct{}, what string) {
	x.tb.Helper()
	x.awaitWithin(c, promptly, what)
}

func (x *check) awaitWithin(c <-chan struct{}, limit time.Duration, what string) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		x.tb.Helper()
		x.fatal("%s did not happen within %v\n%s", what, limit, stacks())
	}
}

// background is spawn with a channel that is closed when f has returned.
func (x *check) background(f func()) <-chan struct{} {
	done := make(chan struct{})
	x.spawn(func() {
		defer close(done)
		f()
	})
	return done
}

// close closes all transports and waits for the end of the subtest.
func (x *check) close(finished <-chan struct{}) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for i, t := range slices.Backward(x.cluster.Transports) {
			if err := t.Close(); err != nil {
				x.report("closing transport %d: %v", i, err)
			}
		}
	}()
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	for _, c := range []<-chan struct{}{closed, finished} {
		select {
		case <-c:
		case <-timer.C:
			x.mu.Lock()
			x.over = true
			x.mu.Unlock()
			x.tb.Fatalf("calls still block %v after Transport.Close\n%s", closeLimit, stacks())
		}
	}
}

// dial connects transport i to transport j.
func (x *check) dial(i, j int) transport.Conn {
	x.tb.Helper()
	c, err := x.cluster.Transports[i].Dial(x.tb.Context(), x.cluster.Transports[j].Addr(), x.cluster.identity(j))
	x.must(err, "dial from %d to %d", i, j)
	return c
}

func (x *check) accept(i int) transport.Conn {
	x.tb.Helper()
	c, err := x.cluster.Transports[i].Accept(x.tb.Context())
	x.must(err, "accept at %d", i)
	return c
}

// pair dials transport 1 from transport 0, and returns both sides of the conn.
func (x *check) pair() (dialed, accepted transport.Conn) {
	x.tb.Helper()
	done := x.background(func() { accepted = x.accept(1) })
	dialed = x.dial(0, 1)
	x.await(done, "Accept of a dialed conn")
	return dialed, accepted
}

func (x *check) open(c transport.Conn) transport.Sender {
	x.tb.Helper()
	s, err := c.OpenPipe(x.tb.Context())
	x.must(err, "open a pipe")
	return s
}

func (x *check) acceptPipe(c transport.Conn) transport.Receiver {
	x.tb.Helper()
	r, err := c.AcceptPipe(x.tb.Context())
	x.must(err, "accept a pipe")
	return r
}

// pipe opens a pipe from one conn to the other, where no other pipe may wait for
// AcceptPipe. It writes one byte and reads it, because the peer may learn of the pipe
// only at the first write.
func (x *check) pipe(from, to transport.Conn) (transport.Sender, transport.Receiver) {
	x.tb.Helper()
	s := x.open(from)
	x.write(s, []byte{0xA5})
	r := x.acceptPipe(to)
	var b [1]byte
	n, err := r.Read(b[:])
	if n != 1 || err != nil || b[0] != 0xA5 {
		x.fatal("first byte of a pipe: read %d byte, %#x, error %v", n, b[0], err)
	}
	return s, r
}

// newPipe opens a pipe of a new conn.
func (x *check) newPipe() (transport.Sender, transport.Receiver) {
	x.tb.Helper()
	return x.pipe(x.pair())
}

// write writes the whole of p.
func (x *check) write(s transport.Sender, p []byte) {
	n, err := s.Write(p)
	if n != len(p) || err != nil {
		x.tb.Helper()
		x.fatal("write of %d bytes: got %d, %v", len(p), n, err)
	}
}

// send writes n bytes of the stream from offset off on.
func (x *check) send(s transport.Sender, d stream, off, n int) {
	x.tb.Helper()
	x.write(s, d.bytes(off, n))
}

// receive reads n bytes with ReadFunc, and compares them with the stream from offset off
// on.
func (x *check) receive(r transport.Receiver, d stream, off, n int) {
	at := off
	got, err := r.ReadFunc(n, func(p []byte) {
		x.same(d, p, at)
		at += len(p)
	})
	if got != n || err != nil || at != off+n {
		x.tb.Helper()
		x.fatal("ReadFunc(%d) at %d: got %d, %v, and %d bytes in views", n, off, got, err, at-off)
	}
}

// same fails if p differs from the stream from offset off on.
func (x *check) same(d stream, p []byte, off int) {
	if i := d.diff(p, off); i >= 0 {
		x.tb.Helper()
		x.fatal("byte %d of the pipe is wrong", off+i)
	}
}

// wantEOF fails if Read does not return io.EOF.
func (x *check) wantEOF(r transport.Receiver) {
	x.tb.Helper()
	var b [1]byte
	if n, err := r.Read(b[:]); n != 0 || err != io.EOF {
		x.fatal("read at the end of the pipe: got %d, %v, want 0, EOF", n, err)
	}
}

// fillUp writes to a pipe that is not read until Write blocks, and returns the number of
// bytes written.
func (x *check) fillUp(s transport.Sender, d stream) int {
	const limit = 32 << 20
	x.tb.Helper()
	buf := make([]byte, 64<<10)
	for off := 0; off < limit; {
		d.fill(buf, off)
		x.must(s.SetWriteDeadline(time.Now().Add(2*aWhile)), "set a write deadline")
		n, err := s.Write(buf)
		off += n
		if err != nil {
			x.wantError(err, os.ErrDeadlineExceeded, "write to an unread pipe")
			x.must(s.SetWriteDeadline(time.Time{}), "remove the write deadline")
			return off
		}
		if n != len(buf) {
			x.fatal("write of %d bytes: got %d without an error", len(buf), n)
		}
	}
	x.fatal("a pipe that is not read accepts more than %d MiB", limit>>20)
	return 0
}

// within returns a context that ends after d, or with the test.
func (x *check) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(x.tb.Context(), d)
}

// number encodes the number of a stream, and streamNumber reads it from a pipe.
func number(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }

func (x *check) streamNumber(r transport.Receiver) int {
	var b [4]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		x.tb.Helper()
		x.fatal("read the number of a stream: %v", err)
	}
	return int(binary.BigEndian.Uint32(b[:]))
}

// stacks returns the stacks of all goroutines.
func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}
