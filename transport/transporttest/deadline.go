package transporttest

import (
	"errors"
	"math/rand/v2"
	"os"
	"time"
)

// testWriteDeadline: a Write past its deadline returns exactly how many bytes it has
// written, and the next Write continues after them.
func testWriteDeadline(x *check) {
	s, r := x.newPipe()
	d := x.data.stream(0)

	// A past deadline fails every Write until it is removed.
	x.must(s.SetWriteDeadline(time.Now().Add(-time.Second)), "set a write deadline")
	for range 2 {
		n, err := s.Write(d.bytes(0, 10))
		if n != 0 {
			x.fatal("Write past its deadline moves %d bytes", n)
		}
		x.wantError(err, os.ErrDeadlineExceeded, "Write past its deadline")
	}
	x.must(s.SetWriteDeadline(time.Time{}), "remove the write deadline")
	x.send(s, d, 0, 10)

	// A future deadline interrupts a Write when it passes.
	off := 10 + x.fillUp(s, stream{d.table, d.start + 10})
	x.must(s.SetWriteDeadline(time.Now().Add(aWhile)), "set a write deadline")
	start := time.Now()
	n, err := s.Write(d.bytes(off, 8<<20))
	x.wantError(err, os.ErrDeadlineExceeded, "Write to a full pipe")
	if took := time.Since(start); took < aWhile/2 || took > promptly {
		x.fatal("Write with a deadline in %v returned after %v", aWhile, took)
	}
	off += n
	x.must(s.SetWriteDeadline(time.Time{}), "remove the write deadline")

	x.rest(s, r, d, 0, off, 1_000_003)
}

// testWriteDeadlineInterrupts: a deadline interrupts the current Write.
func testWriteDeadlineInterrupts(x *check) {
	s, r := x.newPipe()
	d := x.data.stream(0)
	off := x.fillUp(s, d)
	for range 5 {
		writer := x.background(func() {
			n, err := s.Write(d.bytes(off, 2<<20))
			off += n
			x.wantError(err, os.ErrDeadlineExceeded, "interrupted Write")
		})
		time.Sleep(aWhile / 5)
		x.must(s.SetWriteDeadline(time.Unix(1, 0)), "set a write deadline")
		x.await(writer, "return of an interrupted Write")
		x.must(s.SetWriteDeadline(time.Time{}), "remove the write deadline")
	}
	x.must(s.Close(), "close the pipe")
	x.receive(r, d, 0, off)
	x.wantEOF(r)
}

// testNoViewAfterWrite: after Write has returned, with or without an error, no view shows
// its slice.
func testNoViewAfterWrite(x *check) {
	s, r := x.newPipe()
	d := x.data.stream(0)
	buf := d.bytes(0, 1<<20)
	inView := make(chan struct{})
	moved := make(chan int, 1)
	x.spawn(func() {
		n, err := s.Write(buf)
		if err != nil {
			x.wantError(err, os.ErrDeadlineExceeded, "interrupted Write")
		}
		clear(buf)
		moved <- n
	})
	x.spawn(func() {
		<-inView
		x.must(s.SetWriteDeadline(time.Unix(1, 0)), "set a write deadline")
	})
	off := 0
	look := func(p []byte) {
		if off == 0 {
			close(inView)
			time.Sleep(aWhile)
		}
		if i := d.diff(p, off); i >= 0 {
			x.fatal("byte %d changes in the view after its Write has returned", off+i)
		}
		off += len(p)
	}
	if n, err := r.ReadFunc(1, look); n != 1 || err != nil {
		x.fatal("ReadFunc(1): got %d, %v", n, err)
	}
	n := <-moved
	x.must(s.SetWriteDeadline(time.Time{}), "remove the write deadline")
	x.spawn(func() { x.must(s.Close(), "close the pipe") })
	if n < 1 || n > len(buf) {
		x.fatal("Write of %d bytes returns %d after one byte was read", len(buf), n)
	}
	if got, err := r.ReadFunc(n-1, look); got != n-1 || err != nil {
		x.fatal("ReadFunc(%d): got %d, %v", n-1, got, err)
	}
	x.wantEOF(r)
}

// testReadDeadline: a Read or ReadFunc past its deadline returns exactly how many bytes it
// has consumed, and the next one continues after them.
func testReadDeadline(x *check) {
	s, r := x.newPipe()
	d := x.data.stream(0)
	var buf [100]byte

	x.must(r.SetReadDeadline(time.Now().Add(-time.Second)), "set a read deadline")
	_, err := r.Read(buf[:])
	x.wantError(err, os.ErrDeadlineExceeded, "Read past its deadline")
	n, err := r.ReadFunc(10, func([]byte) { x.fatal("ReadFunc past its deadline shows bytes") })
	if n != 0 {
		x.fatal("ReadFunc past its deadline consumes %d bytes", n)
	}
	x.wantError(err, os.ErrDeadlineExceeded, "ReadFunc past its deadline")

	x.must(r.SetReadDeadline(time.Now().Add(aWhile)), "set a read deadline")
	start := time.Now()
	_, err = r.Read(buf[:])
	x.wantError(err, os.ErrDeadlineExceeded, "Read of an empty pipe")
	if took := time.Since(start); took < aWhile/2 || took > promptly {
		x.fatal("Read with a deadline in %v returned after %v", aWhile, took)
	}

	x.must(r.SetReadDeadline(time.Now().Add(4*aWhile)), "set a read deadline")
	x.send(s, d, 0, 1000)
	seen := 0
	n, err = r.ReadFunc(5000, func(p []byte) {
		x.same(d, p, seen)
		seen += len(p)
	})
	x.wantError(err, os.ErrDeadlineExceeded, "ReadFunc of more bytes than were sent")
	if n != seen || n > 1000 {
		x.fatal("ReadFunc past its deadline returns %d, want %d, the bytes that it has shown", n, seen)
	}
	x.must(r.SetReadDeadline(time.Time{}), "remove the read deadline")
	x.spawn(func() { x.send(s, d, 1000, 1000) })
	x.receive(r, d, n, 2000-n)
}

// testReadDeadlineInterrupts: a deadline interrupts the current read.
func testReadDeadlineInterrupts(x *check) {
	s, r := x.newPipe()
	for i := range 6 {
		reader := x.background(func() {
			var err error
			if i%2 == 0 {
				_, err = r.Read(make([]byte, 10))
			} else {
				_, err = r.ReadFunc(10, func([]byte) { x.fatal("ReadFunc shows bytes of an empty pipe") })
			}
			x.wantError(err, os.ErrDeadlineExceeded, "interrupted read")
		})
		time.Sleep(aWhile / 5)
		x.must(r.SetReadDeadline(time.Unix(1, 0)), "set a read deadline")
		x.await(reader, "return of an interrupted read")
		x.must(r.SetReadDeadline(time.Time{}), "remove the read deadline")
	}
	x.send(s, x.data.stream(0), 0, 10)
	x.receive(r, x.data.stream(0), 0, 10)
}

// testDeadlinesInTransfer: each byte arrives once, however often both sides are
// interrupted.
func testDeadlinesInTransfer(x *check) {
	const total = 6 << 20
	s, r := x.newPipe()
	d := x.data.stream(0)
	soon := func(rng *rand.Rand) time.Time {
		return time.Now().Add(time.Duration(rng.IntN(3000)-300) * time.Microsecond)
	}
	writer := x.background(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		buf := make([]byte, 1<<20)
		for off := 0; off < total; {
			p := buf[:min(1+rng.IntN(len(buf)), total-off)]
			d.fill(p, off)
			x.must(s.SetWriteDeadline(soon(rng)), "set a write deadline")
			n, err := s.Write(p)
			if n < len(p) == (err == nil) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				x.fatal("Write of %d bytes: got %d, %v", len(p), n, err)
			}
			clear(p)
			off += n
		}
		x.must(s.Close(), "close the pipe")
	})
	rng := rand.New(rand.NewPCG(2, 2))
	for off := 0; off < total; {
		want := min(1+rng.IntN(200_000), total-off)
		x.must(r.SetReadDeadline(soon(rng)), "set a read deadline")
		at := off
		n, err := r.ReadFunc(want, func(p []byte) {
			x.same(d, p, at)
			at += len(p)
		})
		if n != at-off || n < want == (err == nil) || err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			x.fatal("ReadFunc(%d): got %d, %v, and %d bytes in views", want, n, err, at-off)
		}
		off = at
		time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
	}
	x.must(r.SetReadDeadline(time.Time{}), "remove the read deadline")
	x.wantEOF(r)
	x.await(writer, "end of the writer")
}
