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

// poller returns r with its Poller. It skips the subtest if there is none.
func (x *check) poller(r transport.Receiver) polled {
	p := transport.CapabilitiesOf(r).Poller
	x.need("poller", p != nil, "its receivers lack the capability Poller")
	return polled{x, r, p}
}

// A polled is a Receiver that can be polled.
type polled struct {
	*check
	transport.Receiver
	transport.Poller
}

// wantEmpty fails if TryRead or TryReadFunc returns data or an error.
func (p polled) wantEmpty(when string) {
	if n, err := p.TryRead(make([]byte, 10)); n != 0 || err != nil {
		p.tb.Helper()
		p.fatal("TryRead %s: got %d, %v, want 0 and no error", when, n, err)
	}
	if n, err := p.tryReadFunc(make([]byte, 10)); n != 0 || err != nil {
		p.tb.Helper()
		p.fatal("TryReadFunc %s: got %d, %v, want 0 and no error", when, n, err)
	}
}

// take reads n bytes by TryRead, TryReadFunc and WaitReadable, and compares them with the
// stream from offset off on.
func (p polled) take(d stream, off, n int) {
	p.tb.Helper()
	buf := make([]byte, n)
	for i, got := 0, 0; got < n; i++ {
		var m int
		var err error
		if i%3 < 2 {
			m, err = p.TryRead(buf[got:])
		} else {
			m, err = p.tryReadFunc(buf[got:])
		}
		p.must(err, "TryRead at %d", off+got)
		p.same(d, buf[got:got+m], off+got)
		if got += m; m == 0 {
			p.WaitReadable()
		}
	}
}

// tryReadFunc is TryRead implemented by TryReadFunc.
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

// end calls TryRead until it fails, and returns the error.
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

// wait calls WaitReadable on another goroutine, and closes the channel when it returns.
func (p polled) wait() <-chan struct{} { return p.background(p.WaitReadable) }

// A feed takes numbers of bytes to write.
type feed chan int

// feed starts a goroutine that writes a stream, since a Write may block until its bytes
// are read.
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

// testTryRead: TryRead returns the data that has arrived, including the rest after ReadFunc,
// and does not block without data.
func testTryRead(x *check) {
	s, r := x.newPipe()
	p := x.poller(r)
	d := x.data.stream(0)
	f := x.feed(s, d)
	p.wantEmpty("of an empty pipe")
	if n, err := p.TryRead(nil); n != 0 || err != nil {
		x.fatal("TryRead of no bytes: got %d, %v", n, err)
	}
	off := 0
	for _, size := range []int{1, 2, 100, 5000, 70_000} {
		f <- size
		p.take(d, off, size)
		p.wantEmpty("of a pipe that has been read")
		off += size
	}
	for _, part := range []int{1, 10, 999} {
		f <- 1000
		x.receive(r, d, off, part)
		p.take(d, off+part, 1000-part)
		p.wantEmpty("of a pipe that has been read")
		off += 1000
		f <- 1000
		p.take(d, off, part)
		x.receive(r, d, off+part, 1000-part)
		off += 1000
	}
	p.wantEmpty("of a pipe that has been read")
	close(f)
	x.must(s.Close(), "close the sender")
	x.wantEOF(p.Receiver)
	if _, err := p.TryRead(make([]byte, 1)); err != io.EOF {
		x.fatal("TryRead at the end of the pipe: %v, want EOF", err)
	}
	if _, err := p.tryReadFunc(make([]byte, 1)); err != io.ErrUnexpectedEOF {
		x.fatal("TryReadFunc at the end of the pipe: %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

// testWaitReadable: WaitReadable returns if there is data, whether it arrived before or
// arrives during the call, in the pipe or in a buffer of the receiver.
func testWaitReadable(x *check) {
	s, r := x.newPipe()
	p := x.poller(r)
	d := x.data.stream(0)
	f := x.feed(s, d)
	defer close(f)
	off := 0
	for i := range 30 {
		if i%2 == 0 {
			f <- 1000
			p.take(d, off, 1) // The rest has arrived now, too.
			x.await(p.wait(), "WaitReadable with data")
			p.take(d, off+1, 999)
		} else {
			p.wantEmpty("of a pipe that has been read")
			done := x.background(func() { p.take(d, off, 1000) })
			time.Sleep(time.Duration(i) * 100 * time.Microsecond)
			f <- 1000
			x.await(done, "WaitReadable before the data")
		}
		off += 1000
	}
	for i := range 30 {
		done := p.wait()
		time.Sleep(time.Duration(i%3) * 100 * time.Microsecond)
		f <- 1000
		p.poll(d, off, 10)
		x.await(done, "WaitReadable with data left")
		x.receive(r, d, off+10, 990)
		p.wantEmpty("of a pipe that has been read")
		off += 1000
	}
}

// testSetPolling: while polling is on, data does not end WaitReadable. SetPolling(false)
// ends it if there is data.
func testSetPolling(x *check) {
	s, r := x.newPipe()
	p := x.poller(r)
	d := x.data.stream(0)
	f := x.feed(s, d)
	defer close(f)
	off := 0
	for i := range 40 {
		var done <-chan struct{}
		if i%2 == 0 {
			done = p.wait()
			time.Sleep(time.Duration(i) * 20 * time.Microsecond)
			p.SetPolling(true)
		} else {
			p.SetPolling(true)
			done = p.wait()
		}
		for range i % 4 {
			f <- 100
			p.poll(d, off, 100)
			off += 100
		}
		f <- 1000
		if i == 21 {
			time.Sleep(aWhile)
			select {
			case <-done:
				x.fatal("WaitReadable returns while polling is on")
			default:
			}
		}
		left := 1000
		if i%3 == 0 {
			p.poll(d, off, 10)
			left -= 10
		}
		p.SetPolling(false)
		x.await(done, "WaitReadable after SetPolling(false) with data")
		p.take(d, off+1000-left, left)
		p.wantEmpty("of a pipe that has been read")
		off += 1000
	}
}

// poll reads n bytes by TryRead, while another goroutine may be in WaitReadable.
func (p polled) poll(d stream, off, n int) {
	p.tb.Helper()
	buf := make([]byte, n)
	for got, start := 0, time.Now(); got < n; {
		m, err := p.TryRead(buf[got:])
		p.must(err, "TryRead at %d", off+got)
		p.same(d, buf[got:got+m], off+got)
		if got += m; m == 0 {
			if time.Since(start) > promptly {
				p.fatal("TryRead returns no data for %v", promptly)
			}
			time.Sleep(time.Microsecond)
		}
	}
}

// testPollingInTurn: one goroutine waits for data with WaitReadable and reads it, and
// another one polls from time to time. Each byte is read once, and none is left.
func testPollingInTurn(x *check) {
	s, r := x.newPipe()
	t := &sharedReader{polled: x.poller(r), data: x.data.stream(0)}
	reader := x.background(t.read)
	stop := make(chan struct{})
	poller := x.background(func() { t.pollInTurn(stop) })
	rng := rand.New(rand.NewPCG(3, 1))
	sent := 0
	for range 300 {
		for range 1 + rng.IntN(3) {
			n := 1 + rng.IntN(3000)
			x.send(s, t.data, sent, n)
			sent += n
		}
		// All data must be read before more is sent, since that would hide a missed
		// wake-up.
		for start := time.Now(); t.got() < sent; time.Sleep(10 * time.Microsecond) {
			if time.Since(start) > promptly {
				x.fatal("%d of %d bytes are not read\n%s", sent-t.got(), sent, stacks())
			}
		}
	}
	close(stop)
	x.await(poller, "end of the polling goroutine")
	x.must(s.Close(), "close the sender")
	x.await(reader, "end of the reader")
}

// A sharedReader is a pipe that two goroutines read in turn.
type sharedReader struct {
	polled
	data stream

	mu sync.Mutex // held by the goroutine that reads
	at int        // offset
}

func (t *sharedReader) got() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// tryLocked calls TryRead, and reports whether it returned data or the end of the pipe.
func (t *sharedReader) tryLocked(buf []byte) (some, end bool) {
	n, err := t.TryRead(buf)
	t.same(t.data, buf[:n], t.at)
	t.at += n
	if err != nil && err != io.EOF {
		t.fatal("TryRead at %d: %v", t.at, err)
	}
	return n > 0, err == io.EOF
}

// read reads the pipe to its end, and waits with WaitReadable.
func (t *sharedReader) read() {
	buf := make([]byte, 1000)
	for {
		t.WaitReadable()
		t.mu.Lock()
		some, end := t.tryLocked(buf)
		for some && !end {
			some, end = t.tryLocked(buf)
		}
		t.mu.Unlock()
		if end {
			return
		}
		runtime.Gosched()
	}
}

// pollInTurn polls the pipe for short times, and stops with or without data left.
func (t *sharedReader) pollInTurn(stop <-chan struct{}) {
	rng := rand.New(rand.NewPCG(3, 2))
	buf := make([]byte, 1000)
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(100)) * time.Microsecond):
		}
		t.mu.Lock()
		polling := rng.IntN(4) > 0
		if polling {
			t.SetPolling(true)
		}
		for range rng.IntN(40) {
			t.tryLocked(buf[:1+rng.IntN(len(buf))])
			runtime.Gosched()
		}
		if polling {
			t.SetPolling(false)
		}
		t.mu.Unlock()
	}
}

// testPollerDeadline: a deadline ends WaitReadable, and TryRead fails until it is removed.
func testPollerDeadline(x *check) {
	s, r := x.newPipe()
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
		x.await(p.wait(), "WaitReadable past the deadline")

		done = x.background(func() { p.SetPolling(true); p.SetPolling(false); p.WaitReadable() })
		x.await(done, "WaitReadable past the deadline, after polling")
		x.must(p.SetReadDeadline(time.Time{}), "remove the read deadline")
		p.wantEmpty("after the deadline was removed")
		f <- 10
		p.take(d, 10*i, 10)
	}
	// A deadline that passes while polling is on counts afterwards.
	p.SetPolling(true)
	done := p.wait()
	x.must(p.SetReadDeadline(time.Unix(1, 0)), "set a read deadline")
	p.SetPolling(false)
	x.await(done, "WaitReadable past the deadline")
}

// testPollerEnd: the end of a pipe ends WaitReadable, with polling on or off, and TryRead
// returns the same error as Read.
func testPollerEnd(x *check) {
	for _, polling := range []bool{false, true} {
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
			p.SetPolling(polling)
			done := p.wait()
			time.Sleep(aWhile / 10)
			x.must(end.do(s, r), "close %s", end.name)
			if end.want != io.EOF {
				x.await(done, "WaitReadable at the end of "+end.name)
			}
			err := p.end()
			if !errors.Is(err, end.want) {
				x.fatal("TryRead after the end of %s: %v, want %v", end.name, err, end.want)
			}
			p.SetPolling(false)
			x.await(done, "WaitReadable after the end of "+end.name)
			x.await(p.wait(), "another WaitReadable after the end of "+end.name)
			if _, again := p.Read(make([]byte, 1)); again != err {
				x.fatal("Read after the end of %s: %v, TryRead: %v", end.name, again, err)
			}
		}
	}
}

// testPollerKill: the death of the peer ends WaitReadable, with polling on or off.
func testPollerKill(x *check) {
	x.need("kill", x.cluster.Kill != nil, "its factory has no Cluster.Kill")
	a, b := x.pair()
	_, r := x.pipe(b, a)
	_, r2 := x.pipe(b, a)
	p, polling := x.poller(r), x.poller(r2)
	polling.SetPolling(true)
	defer polling.SetPolling(false)
	done, done2 := p.wait(), polling.wait()
	time.Sleep(aWhile)
	x.cluster.Kill(1)
	x.await(done, "WaitReadable of a pipe from a dead process")
	x.await(done2, "WaitReadable, with polling on, of a pipe from a dead process")
	x.wantError(p.end(), transport.ErrPeerGone, "TryRead of a pipe from a dead process")
	x.wantError(polling.end(), transport.ErrPeerGone, "TryRead of a pipe from a dead process")
}
