package transporttest

import (
	"io"
	"math/rand/v2"

	"github.com/nexar-go/nexar/transport"
)

// sizes returns sizes for writes and reads: 0, 1, primes, and neighbors of common buffer
// sizes.
func sizes() []int {
	return []int{
		0, 1, 2, 7, 13, 251, 1021,
		4<<10 - 1, 4 << 10, 4<<10 + 1,
		64<<10 - 1, 64 << 10, 64<<10 + 1, 65521,
		1<<20 - 1, 1 << 20, 1<<20 + 1,
		8 << 20,
	}
}

// testSizes: writes of all sizes arrive in order.
func testSizes(x *check) {
	s, r := x.newPipe()
	d := x.data.stream(1)
	writer := x.background(func() {
		off := 0
		for _, n := range sizes() {
			x.send(s, d, off, n)
			off += n
		}
		x.must(s.Close(), "close the pipe")
	})
	off := 0
	for _, n := range sizes() {
		x.receive(r, d, off, n)
		off += n
	}
	x.wantEOF(r)
	x.await(writer, "end of the writer")
}

// testMixedReads: Read and ReadFunc may alternate.
func testMixedReads(x *check) {
	const total = 4<<20 + 1
	s, r := x.newPipe()
	d := x.data.stream(2)
	rng := func(seed uint64) func() int {
		g := rand.New(rand.NewPCG(seed, 0))
		return func() int { return 1 + g.IntN(1<<(1+g.IntN(18))) }
	}
	x.spawn(func() {
		size := rng(1)
		for off := 0; off < total; {
			n := min(size(), total-off)
			x.send(s, d, off, n)
			off += n
		}
		x.must(s.Close(), "close the pipe")
	})
	size := rng(2)
	buf := make([]byte, 1<<20)
	for off, i := 0, 0; off < total; i++ {
		n := min(size(), total-off)
		if i%2 == 0 {
			x.receive(r, d, off, n)
			off += n
			continue
		}
		got, err := r.Read(buf[:n])
		if got < 1 || got > n || err != nil {
			x.fatal("Read of %d bytes at %d: got %d, %v", n, off, got, err)
		}
		x.same(d, buf[:got], off)
		off += got
	}
	x.wantEOF(r)
}

// testReadFuncPieces: ReadFunc shows exactly the requested bytes, in pieces that are not
// empty.
func testReadFuncPieces(x *check) {
	s, r := x.newPipe()
	d := x.data.stream(3)
	const total = 300_007
	x.spawn(func() { x.send(s, d, 0, total) })
	off := 0
	for _, n := range []int{1, 1, 2, 3, 64, 1000, 4096, 65536, 100_003, 129_301} {
		at := off
		got, err := r.ReadFunc(n, func(p []byte) {
			if len(p) == 0 || at+len(p) > off+n {
				x.fatal("ReadFunc(%d) shows a piece of %d bytes after %d", n, len(p), at-off)
			}
			x.same(d, p, at)
			at += len(p)
		})
		if got != n || at != off+n || err != nil {
			x.fatal("ReadFunc(%d): got %d, %v, and %d bytes in views", n, got, err, at-off)
		}
		off = at
	}
	if off != total {
		x.fatal("the sizes of this test add up to %d, want %d", off, total)
	}
}

// testZeroBytes: writes and reads of zero bytes return at once.
func testZeroBytes(x *check) {
	s, r := x.newPipe()
	x.write(s, nil)
	if n, err := r.ReadFunc(0, func(p []byte) { x.fatal("ReadFunc(0) shows %d bytes", len(p)) }); n != 0 || err != nil {
		x.fatal("ReadFunc(0): got %d, %v", n, err)
	}
	if n, err := r.Read(nil); n != 0 || err != nil {
		x.fatal("Read(nil): got %d, %v", n, err)
	}
	x.write(s, []byte{})
	x.send(s, x.data.stream(4), 0, 10)
	x.receive(r, x.data.stream(4), 0, 10)
}

// testEOF: reads after the last byte return io.EOF, repeatedly.
func testEOF(x *check) {
	a, b := x.pair()
	for _, n := range []int{0, 1, 5000, 200_000} {
		s, r := x.pipe(a, b)
		d := x.data.stream(n)
		x.spawn(func() {
			x.send(s, d, 0, n)
			x.must(s.Close(), "close the pipe")
		})
		got, err := io.ReadAll(io.LimitReader(r, 1<<20))
		if len(got) != n || err != nil {
			x.fatal("read %d bytes until the end, %v, want %d", len(got), err, n)
		}
		x.same(d, got, 0)
		x.wantEOF(r)
		x.wantEOF(r)
		x.must(r.Close(), "close the receiver")
	}
}

// testUnexpectedEOF: ReadFunc returns the number of bytes before the end of the pipe.
func testUnexpectedEOF(x *check) {
	a, b := x.pair()
	for _, n := range []int{0, 1, 999, 100_000} {
		s, r := x.pipe(a, b)
		x.spawn(func() {
			x.send(s, x.data.stream(5), 0, n)
			x.must(s.Close(), "close the pipe")
		})
		seen := 0
		got, err := r.ReadFunc(n+1, func(p []byte) { seen += len(p) })
		if got != n || seen != n || err != io.ErrUnexpectedEOF {
			x.fatal("ReadFunc(%d) of %d bytes: got %d, %v, and %d bytes in views", n+1, n, got, err, seen)
		}
	}
}

// testManyPipes: concurrent pipes in both directions do not mix.
func testManyPipes(x *check) {
	const pipes = 40
	a, b := x.pair()
	for _, ends := range [][2]transport.Conn{{a, b}, {b, a}} {
		for i := range pipes {
			n := 1 + i*i*i
			x.spawn(func() {
				s := x.open(ends[0])
				x.write(s, number(i))
				x.send(s, x.data.stream(i), 0, n)
				x.must(s.Close(), "close pipe %d", i)
			})
			x.spawn(func() {
				r := x.acceptPipe(ends[1])
				i := x.streamNumber(r)
				x.receive(r, x.data.stream(i), 0, 1+i*i*i)
				x.wantEOF(r)
			})
		}
	}
}

// testReadPipesInAnyOrder: pipes can be read in any order, long after they were written.
func testReadPipesInAnyOrder(x *check) {
	const pipes = 10
	a, b := x.pair()
	var senders [pipes]transport.Sender
	for i := range senders {
		senders[i] = x.open(a)
		x.write(senders[i], number(i))
		x.send(senders[i], x.data.stream(i), 0, 1000)
	}
	receivers := make([]transport.Receiver, pipes)
	for range pipes {
		r := x.acceptPipe(b)
		receivers[x.streamNumber(r)] = r
	}
	for i := pipes - 1; i >= 0; i-- {
		if receivers[i] == nil {
			x.fatal("pipe %d was not accepted", i)
		}
		x.receive(receivers[i], x.data.stream(i), 0, 1000)
		x.must(senders[i].Close(), "close pipe %d", i)
		x.wantEOF(receivers[i])
	}
}

// testPrioritize: a prioritized pipe carries the same bytes.
func testPrioritize(x *check) {
	s, r := x.newPipe()
	p := transport.CapabilitiesOf(s).Prioritizer
	x.need("prioritize", p != nil, "its senders lack the capability Prioritizer")
	p.Prioritize()
	const total = 1 << 20
	x.spawn(func() { x.send(s, x.data.stream(6), 0, total) })
	x.receive(r, x.data.stream(6), 0, total)
}
