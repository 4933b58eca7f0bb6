package transporttest

import (
	"encoding/binary"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// testIndependence: unread pipes with blocked writers delay no other pipe of the conn, old
// or new, in either direction.
func testIndependence(x *check) {
	const blocked, huge = 8, 4 << 20
	a, b := x.pair()
	ping, pingReader := x.pipe(a, b)
	pong, pongReader := x.pipe(b, a)
	var unread [blocked]transport.Receiver
	for i := range unread {
		s, r := x.pipe(a, b)
		unread[i] = r
		taken := x.fillUp(s, x.data.stream(i))
		x.spawn(func() {
			x.send(s, x.data.stream(i), taken, huge)
			x.must(s.Close(), "close pipe %d", i)
		})
		defer x.spawn(func() {
			x.receive(r, x.data.stream(i), 0, taken+huge)
			x.wantEOF(r)
		})
	}
	alive := x.background(func() {
		for i := range 20 {
			x.send(ping, x.data.stream(20), i*1000, 1000)
			x.receive(pingReader, x.data.stream(20), i*1000, 1000)
			x.send(pong, x.data.stream(21), i*1000, 1000)
			x.receive(pongReader, x.data.stream(21), i*1000, 1000)
		}
		s, r := x.pipe(a, b)
		x.spawn(func() { x.send(s, x.data.stream(22), 0, huge) })
		x.receive(r, x.data.stream(22), 0, huge)
	})
	x.awaitWithin(alive, subtestLimit/2, "traffic beside unread pipes")
}

// testBackPressure: an unread pipe buffers a bounded number of bytes, and loses none.
func testBackPressure(x *check) {
	s, r := x.newPipe()
	d := x.data.stream(0)
	taken := x.fillUp(s, d)
	x.rest(s, r, d, 0, taken, 3<<20)
}

// testTryWrite: TryWrite writes all bytes or none, and does not block.
func testTryWrite(x *check) {
	s, r := x.newPipe()
	try := x.tryWriter(s)
	x.triesToWrite("TryWrite", s, r, []int{1, 1000, 3, 4096, 17, 8191}, func(pieces [][]byte) bool {
		return try.TryWrite(slices.Concat(pieces...))
	})
}

// triesToWrite writes messages of the given sizes to an unread pipe until try fails several
// times in a row: it may also fail while a transport is busy. All bytes arrive, and try fails
// on a closed pipe.
func (x *check) triesToWrite(how string, s transport.Sender, r transport.Receiver, sizes []int, try func(pieces [][]byte) bool) {
	d, off := x.data.stream(0), 0
	for i, failures := 0, 0; failures < 3 && off <= 32<<20; {
		n := sizes[i%len(sizes)]
		if !try(pieces(d, off, n)) {
			failures++
			time.Sleep(time.Millisecond)
			continue
		}
		failures = 0
		i++
		off += n
	}
	if off == 0 || off > 32<<20 {
		x.fatal("%s has written %d bytes to an unread pipe", how, off)
	}
	x.rest(s, r, d, 0, off, restBytes)
	if try([][]byte{{1}}) {
		x.fatal("%s succeeds on a closed pipe", how)
	}
}

// restBytes is the number of bytes that tests write to a pipe after they have filled it.
const restBytes = 100_000

// rest writes further bytes from off on, closes the pipe, and reads it from offset read to
// its end.
func (x *check) rest(s transport.Sender, r transport.Receiver, d stream, read, off, more int) {
	writer := x.background(func() {
		x.send(s, d, off, more)
		x.must(s.Close(), "close the pipe")
	})
	x.receive(r, d, read, off+more-read)
	x.wantEOF(r)
	x.await(writer, "end of the writer")
}

// testTryWriteConcurrently: messages of several goroutines are not interleaved.
func testTryWriteConcurrently(x *check) {
	const writers, messages, size = 4, 200, 100
	a, b := x.pair()
	s, r := x.pipe(a, b)
	try := x.tryWriter(s)
	var group sync.WaitGroup
	for w := range writers {
		group.Add(1)
		x.spawn(func() {
			defer group.Done()
			for i := range messages {
				m := slices.Concat(number(w), number(i), x.data.stream(w).bytes(i, size))
				for !try.TryWrite(m) {
					if a.Err() != nil {
						x.fatal("the conn ended: %v", a.Err())
					}
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
	}
	var next [writers]int
	var m [8 + size]byte
	for range writers * messages {
		if _, err := io.ReadFull(r, m[:]); err != nil {
			x.fatal("read a message: %v", err)
		}
		w, i := binary.BigEndian.Uint32(m[:]), binary.BigEndian.Uint32(m[4:])
		if w >= writers || int(i) != next[w] || x.data.stream(int(w)).diff(m[8:], int(i)) >= 0 {
			x.fatal("a message of TryWrite is mixed with another one or out of order: writer %d, message %d", w, i)
		}
		next[w]++
	}
	group.Wait()
}

func (x *check) tryWriter(s transport.Sender) transport.TryWriter {
	try := transport.CapabilitiesOf(s).TryWriter
	x.need("trywrite", try != nil, "its senders lack the capability TryWriter")
	return try
}
