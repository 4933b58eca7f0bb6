package transporttest

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// poller is r as a transport.Poller. Without that the subtest has nothing to
// check.
func (x *check) poller(r transport.Receiver) polled {
	p := transport.CapabilitiesOf(r).Poller
	if p == nil {
		x.skip("poller", "its receivers lack the capability Poller")
	}
	return polled{x, r, p}
}

// A polled is the reading end of a pipe that can be polled.
type polled struct {
	*check
	transport.Receiver
	transport.Poller
}

// nothing fails if there is something to read.
func (p polled) nothing(when string) {
	if n, err := p.TryRead(make([]byte, 10)); n != 0 || err != nil {
		p.tb.Helper()
		p.fatal("TryRead %s: got %d, %v, want 0 and no error", when, n, err)
	}
	if n, err := p.tryReadFunc(make([]byte, 10)); n != 0 || err != nil {
		p.tb.Helper()
		p.fatal("TryReadFunc %s: got %d, %v, want 0 and no error", when, n, err)
	}
}

// take reads n bytes with TryRead and TryReadFunc, in turn, and waits with WaitReadable.
// It compares them with the stream from offset off on.
func (p polled) take(d stream, off, n int) {
	p.tb.Helper()
	buf := make([]byte, n)
	for i, got := 0, 0; got < n; i++ {
		m, err := 0, error(nil)
		if i%3 < 2 {
			m, err = p.TryRead(buf[got:])
		} else {
			m, err = p.tryReadFunc(buf[got:])
		}
		p.must(err, "TryRead at %d", off+got)
		if i := d.diff(buf[got:got+m], off+got); i >= 0 {
			p.fatal("byte %d of the pipe is wrong", off+got+i)
		}
		if got += m; m == 0 {
			p.WaitReadable()
		}
	}
}

// tryReadFunc is TryRead by way of TryReadFunc.
func (p polled) tryReadFunc(buf []byte) (int, error) {
	views, got := 0, 0
	n, err := p.TryReadFunc(len(buf), func(view []byte) {
		views++
		got = copy(buf, view)
		if len(view) == 0 || len(view) > len(buf) {
			p.report("TryReadFunc of %d bytes shows %d", len(buf), len(view))
		}
	})
	if n != got || views > 1 || n > 0 && err != nil {
		p.fatal("TryReadFunc: got %d, %v, after %d views of %d bytes", n, err, views, got)
	}
	return n, err
}

// end reads with TryRead until that fails, and returns the error.
func (p polled) end() error {
	for start := time.Now(); time.Since(start) < promptly; time.Sleep(time.Millisecond) {
		n, err := p.TryRead(make([]byte, 10))
		if err != nil {
			return err
		}
		if n != 0 {
			p.fatal("TryRead at the end of the pipe: got %d bytes", n)
		}
	}
	p.fatal("TryRead does not report the end of the pipe")
	return nil
}

// awaiting has another goroutine wait until there is something to read. The
// channel is closed when it has returned from the WaitReadable that was the last one.
func (p polled) awaiting() <-chan struct{} { return p.background(p.WaitReadable) }

// A feed writes to a pipe, for a Write may wait until all has been read.
type feed chan int

// feed begins to write a stream. The channel takes how many bytes come next.
func (x *check) feed(s transport.Sender, d stream) feed {
	f := make(feed, 100)
	x.spawn(func() {
		off := 0
		for n := range f {
			x.send(s, d, off, n)
			off += n
		}
	})
	return f
}

// testTryRead: TryRead takes what there is, also what ReadFunc has left, and
// returns at once if there is nothing.
func testTryRead(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	p := x.poller(r)
	d := x.data.stream(0)
	f := x.feed(s, d)
	p.nothing("of an empty pipe")
	if n, err := p.TryRead(nil); n != 0 || err != nil {
		x.fatal("TryRead of no bytes: got %d, %v", n, err)
	}
	off := 0
	for _, size := range []int{1, 2, 100, 5000, 70_000} {
		f <- size
		p.take(d, off, size)
		p.nothing("of a pipe that has been read")
		off += size
	}
	for _, part := range []int{1, 10, 999} {
		f <- 1000
		x.receive(r, d, off, part)
		p.take(d, off+part, 1000-part)
		p.nothing("of a pipe that has been read")
		off += 1000
		f <- 1000
		p.take(d, off, part)
		x.receive(r, d, off+part, 1000-part)
		off += 1000
	}
	p.nothing("of a pipe that has been read")
	close(f)
	x.must(s.Close(), "close the sender")
	x.wantEOF(p.Receiver)
	if _, err := p.TryRead(make([]byte, 1)); err != io.EOF {
		x.fatal("TryRead at the end of the pipe: %v, want EOF", err)
	}
	if _, err := p.tryReadFunc(make([]byte, 1)); err != io.ErrUnexpectedEOF {
		x.fatal("TryReadFunc at the end of the pipe: %v, want an unexpected EOF", err)
	}
}

// testWaitReadable: WaitReadable returns when there is something to read, whether it came
// before or comes later, and wherever what is left of it lies.
func testWaitReadable(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	p := x.poller(r)
	d := x.data.stream(0)
	f := x.feed(s, d)
	defer close(f)
	off := 0
	for i := range 30 {
		if i%2 == 0 {
			f <- 1000
			p.take(d, off, 1) // has waited for it
			x.await(p.awaiting(), "WaitReadable with something to read")
			p.take(d, off+1, 999)
		} else {
			p.nothing("of a pipe that has been read")
			done := x.background(func() { p.take(d, off, 1000) })
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			f <- 1000
			x.await(done, "WaitReadable of something to come")
		}
		off += 1000
	}
	for i := range 30 {
		done := p.awaiting()
		time.Sleep(time.Duration(i%3) * 100 * time.Microsecond)
		f <- 1000
		p.takeAtOnce(d, off, 10)
		x.await(done, "WaitReadable with something left to read")
		x.receive(r, d, off+10, 990)
		p.nothing("of a pipe that has been read")
		off += 1000
	}
}

// testSetPolling: as long as a pipe is attended nobody is woken. Afterwards WaitReadable
// returns if something is still there.
func testSetPolling(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	p := x.poller(r)
	d := x.data.stream(0)
	f := x.feed(s, d)
	defer close(f)
	off := 0
	for i := range 40 {
		var done <-chan struct{}
		if i%2 == 0 {
			done = p.awaiting()
			time.Sleep(time.Duration(i) * 20 * time.Microsecond)
			p.SetPolling(true)
		} else {
			p.SetPolling(true)
			done = p.awaiting()
		}
		for range i % 4 {
			f <- 100
			p.takeAtOnce(d, off, 100)
			off += 100
		}
		f <- 1000
		if i == 21 {
			time.Sleep(aWhile)
			select {
			case <-done:
				x.fatal("WaitReadable has returned from an attended pipe")
			default:
			}
		}
		left := 1000
		if i%3 == 0 {
			p.takeAtOnce(d, off, 10)
			left -= 10
		}
		p.SetPolling(false)
		x.await(done, "WaitReadable after SetPolling(false) with something to read")
		p.take(d, off+1000-left, left)
		p.nothing("of a pipe that has been read")
		off += 1000
	}
}

// takeAtOnce reads n bytes with TryRead, again and again, beside whoever awaits
// the pipe.
func (p polled) takeAtOnce(d stream, off, n int) {
	p.tb.Helper()
	buf := make([]byte, n)
	for got, start := 0, time.Now(); got < n; {
		m, err := p.TryRead(buf[got:])
		p.must(err, "TryRead at %d", off+got)
		if i := d.diff(buf[got:got+m], off+got); i >= 0 {
			p.fatal("byte %d of the pipe is wrong", off+got+i)
		}
		if got += m; m == 0 {
			if time.Since(start) > promptly {
				p.fatal("TryRead finds nothing for %v", promptly)
			}
			time.Sleep(time.Microsecond)
		}
	}
}

// testPollingInTurn: one goroutine awaits the pipe and reads what it finds, and
// another one attends it every now and then. However they take turns, each
// byte is read once, and none is left lying.
func testPollingInTurn(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	t := &turns{polled: x.poller(r), data: x.data.stream(0)}
	reader := x.background(t.read)
	stop := make(chan struct{})
	visitor := x.background(func() { t.visit(stop) })
	rng := rand.New(rand.NewPCG(3, 1))
	sent := 0
	for range 300 {
		for range 1 + rng.IntN(3) {
			n := 1 + rng.IntN(3000)
			x.send(s, t.data, sent, n)
			sent += n
		}
		// All has to be read before there is more: nothing that comes later
		// makes up for somebody who was not woken.
		for start := time.Now(); t.got() < sent; time.Sleep(10 * time.Microsecond) {
			if time.Since(start) > promptly {
				x.fatal("%d bytes of %d are left lying\n%s", sent-t.got(), sent, stacks())
			}
		}
	}
	close(stop)
	x.await(visitor, "end of the visits")
	x.must(s.Close(), "close the sender")
	x.await(reader, "end of the reader")
}

// A turns is a pipe that two goroutines read.
type turns struct {
	polled
	data stream

	mu sync.Mutex // has whoever reads
	at int
}

func (t *turns) got() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// look reads what TryRead finds, and reports whether there was anything. It is
// called with t.mu held.
func (t *turns) look(buf []byte) (some, end bool) {
	n, err := t.TryRead(buf)
	if i := t.data.diff(buf[:n], t.at); i >= 0 {
		t.fatal("byte %d of the pipe is wrong", t.at+i)
	}
	t.at += n
	if err != nil && err != io.EOF {
		t.fatal("TryRead at %d: %v", t.at, err)
	}
	return n > 0, err == io.EOF
}

// read reads all that it finds whenever there may be something.
func (t *turns) read() {
	buf := make([]byte, 1000)
	for {
		t.WaitReadable()
		t.mu.Lock()
		some, end := t.look(buf)
		for some && !end {
			some, end = t.look(buf)
		}
		t.mu.Unlock()
		if end {
			return
		}
		runtime.Gosched()
	}
}

// visit attends the pipe for short times, and leaves it with or without
// something in it.
func (t *turns) visit(stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(3, 2))
	buf := make([]byte, 1000)
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(100)) * time.Microsecond):
		}
		t.mu.Lock()
		attended := rng.IntN(4) > 0
		if attended {
			t.SetPolling(true)
		}
		for range rng.IntN(40) {
			t.look(buf[:1+rng.IntN(len(buf))])
			runtime.Gosched()
		}
		if attended {
			t.SetPolling(false)
		}
		t.mu.Unlock()
	}
}

// testPollerDeadline: a deadline ends WaitReadable, and TryRead says so until it is
// taken away.
func testPollerDeadline(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	p := x.poller(r)
	d := x.data.stream(0)
	f := x.feed(s, d)
	defer close(f)
	for i := range 6 {
		done := x.background(func() {
			for {
				p.WaitReadable()
				if _, err := p.TryRead(make([]byte, 1)); err != nil {
					x.wantError(err, os.ErrDeadlineExceeded, "TryRead past the deadline")
					return
				}
			}
		})
		if i%2 == 0 {
			time.Sleep(aWhile / 10)
			x.must(p.SetReadDeadline(time.Unix(1, 0)), "set a read deadline")
		} else {
			x.must(p.SetReadDeadline(time.Now().Add(aWhile/10)), "set a read deadline")
		}
		x.await(done, "WaitReadable past the deadline")
		x.await(p.awaiting(), "WaitReadable past the deadline")

		done = x.background(func() { p.SetPolling(true); p.SetPolling(false); p.WaitReadable() })
		x.await(done, "WaitReadable past the deadline, of a pipe that was attended")
		x.must(p.SetReadDeadline(time.Time{}), "take the read deadline away")
		p.nothing("after the deadline was taken away")
		f <- 10
		p.take(d, 10*i, 10)
	}
	// A deadline that comes while the pipe is attended counts afterwards.
	p.SetPolling(true)
	done := p.awaiting()
	x.must(p.SetReadDeadline(time.Unix(1, 0)), "set a read deadline")
	p.SetPolling(false)
	x.await(done, "WaitReadable past the deadline")
}

// testPollerEnd: whoever awaits a pipe or looks at it sees its end, attended or
// not, and hears the same reason as from Read.
func testPollerEnd(x *check) {
	for _, attended := range []bool{false, true} {
		a, b := x.pair()
		for _, end := range []struct {
			name string
			do   func(s transport.Sender, r transport.Receiver) error
			want error
		}{
			{"the sender", func(s transport.Sender, _ transport.Receiver) error { return s.Close() }, io.EOF},
			{"the receiver", func(_ transport.Sender, r transport.Receiver) error { return r.Close() }, transport.ErrClosed},
			{"the conn", func(transport.Sender, transport.Receiver) error { return a.Close() }, transport.ErrPeerClosed},
		} {
			s, r := x.pipe(a, b)
			p := x.poller(r)
			p.SetPolling(attended)
			done := p.awaiting()
			time.Sleep(aWhile / 10)
			x.must(end.do(s, r), "close %s", end.name)
			if end.want != io.EOF {
				x.await(done, "WaitReadable of a pipe whose end came with that of "+end.name)
			}
			err := p.end()
			if !errors.Is(err, end.want) {
				x.fatal("TryRead after the end of %s: %v, want %v", end.name, err, end.want)
			}
			p.SetPolling(false)
			x.await(done, "WaitReadable after the end of "+end.name)
			x.await(p.awaiting(), "another WaitReadable after the end of "+end.name)
			if _, again := p.Read(make([]byte, 1)); again != err {
				x.fatal("Read after the end of %s: %v, TryRead said %v", end.name, again, err)
			}
		}
	}
}

// testPollerKill: who awaits a pipe from a process that dies is woken.
func testPollerKill(x *check) {
	if x.cluster.Kill == nil {
		x.skip("kill", "its factory has no Cluster.Kill")
	}
	a, b := x.pair()
	_, r := x.pipe(b, a)
	_, r2 := x.pipe(b, a)
	p, attended := x.poller(r), x.poller(r2)
	attended.SetPolling(true)
	done, done2 := p.awaiting(), attended.awaiting()
	time.Sleep(aWhile)
	x.cluster.Kill(1)
	x.await(done, "WaitReadable of a pipe from a dead process")
	x.await(done2, "WaitReadable of an attended pipe from a dead process")
	x.wantError(p.end(), transport.ErrPeerGone, "TryRead of a pipe from a dead process")
	x.wantError(attended.end(), transport.ErrPeerGone, "TryRead of a pipe from a dead process")
}
