package transporttest

import (
	"time"

	"github.com/nexar-go/nexar/transport"
)

// pieces returns n bytes of a stream from off on as four slices, one of them empty.
func pieces(d stream, off, n int) [][]byte {
	b := d.bytes(off, n)
	at := min(13, n)
	half := at + (n-at)/2
	return [][]byte{b[:at], nil, b[at:half], b[half:]}
}

// testTryWriteVectored: TryWriteVectored writes all pieces or none, and does not block.
func testTryWriteVectored(x *check) {
	s, r := x.newPipe()
	try := transport.CapabilitiesOf(s).TryVectorWriter
	x.need("trywrite", try != nil, "its senders lack the capability TryVectorWriter")
	x.triesToWrite("TryWriteVectored", s, r, []int{1, 1000, 3, 4096, 17, 64<<10 + 60}, try.TryWriteVectored)
}

// testTryWritePart: TryWritePart does not block, exactly the bytes that it reports arrive,
// and those of a later Write follow.
func testTryWritePart(x *check) {
	s, r := x.newPipe()
	try := transport.CapabilitiesOf(s).PartWriter
	x.need("partwrite", try != nil, "its senders lack the capability PartWriter")
	d := x.data.stream(0)
	sizes := []int{1, 1000, 300_000, 3, 1 << 20}
	off := 0
	for i, stuck := 0, 0; stuck < 3 && off <= 64<<20; i++ {
		n := try.TryWritePart(pieces(d, off, sizes[i%len(sizes)]))
		if off += n; n > 0 {
			stuck = 0
			continue
		}
		stuck++
		time.Sleep(time.Millisecond)
	}
	if off == 0 || off > 64<<20 {
		x.fatal("TryWritePart has written %d bytes to an unread pipe", off)
	}
	s.SetWriteDeadline(time.Unix(1, 0))
	if n := try.TryWritePart(pieces(d, off, 10)); n != 0 {
		x.fatal("TryWritePart has written %d bytes past the deadline", n)
	}
	s.SetWriteDeadline(time.Time{})
	x.receive(r, d, 0, off/2)
	half := off / 2
	for end := time.Now().Add(promptly); ; time.Sleep(time.Millisecond) {
		n := try.TryWritePart(pieces(d, off, 1000))
		if off += n; n > 0 {
			break
		}
		if time.Now().After(end) {
			x.fatal("TryWritePart has written nothing for %v to a pipe with room", promptly)
		}
	}
	x.receive(r, d, half, off-half)
	x.rest(s, r, d, off, off, restBytes)
	if n := try.TryWritePart([][]byte{{1}}); n != 0 {
		x.fatal("TryWritePart has written %d bytes to a closed pipe", n)
	}
}

// testTryWriteLazy: the bytes of TryWriteLazy are there when the peer polls, and arrive before those of a later Write, which
// wakes the peer. Many lazy writes wake it as well, before they fill the pipe.
func testTryWriteLazy(x *check) {
	s, r := x.newPipe()
	lazy := transport.CapabilitiesOf(s).LazyWriter
	x.need("lazywrite", lazy != nil, "its senders lack the capability LazyWriter")
	p := x.poller(r)
	d := x.data.stream(0)
	off := 0
	write := func(n int) {
		if !lazy.TryWriteLazy(d.bytes(off, n)) {
			x.fatal("TryWriteLazy of %d bytes at %d failed", n, off)
		}
		off += n
	}
	x.send(s, d, 0, 1) // The peer learns of the pipe at the first Write.
	p.take(d, 0, 1)
	off = 1
	for i := range 20 {
		sleeps := i%2 == 0
		var woken <-chan struct{}
		if sleeps {
			woken = p.wait()
			time.Sleep(time.Millisecond)
		}
		start := off
		write(1 + i)
		write(9)
		p.poll(d, start, 5)
		x.send(s, d, off, 100)
		off += 100
		if sleeps {
			x.await(woken, "WaitReadable after lazy writes and a Write")
		}
		p.take(d, start+5, off-start-5)
		p.wantEmpty("of a pipe that has been read")
	}
	woken, start := p.wait(), off
	for i := 0; ; i++ {
		select {
		case <-woken:
		default:
			if write(9); i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
			continue
		}
		break
	}
	p.take(d, start, off-start)
	write(9)
	x.rest(s, r, d, off-9, off, restBytes)
	if lazy.TryWriteLazy([]byte{1}) {
		x.fatal("TryWriteLazy succeeds on a closed pipe")
	}
}
