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
	a, b := x.pair()
	s, r := x.pipe(a, b)
	try := transport.CapabilitiesOf(s).TryVectorWriter
	if try == nil {
		x.skip("trywrite", "its senders lack the capability TryVectorWriter")
	}
	d := x.data.stream(0)
	off := x.tryFillUp("TryWriteVectored", []int{1, 1000, 3, 4096, 17, 64<<10 + 60}, func(off, n int) bool {
		return try.TryWriteVectored(pieces(d, off, n))
	})
	x.rest(s, r, d, 0, off)
	if try.TryWriteVectored([][]byte{{1}}) {
		x.fatal("TryWriteVectored succeeds on a closed pipe")
	}
}

// testTryWritePart: TryWritePart does not block, exactly the bytes that it reports arrive,
// and those of a later Write follow.
func testTryWritePart(x *check) {
	a, b := x.pair()
	s, r := x.pipe(a, b)
	try := transport.CapabilitiesOf(s).PartWriter
	if try == nil {
		x.skip("partwrite", "its senders lack the capability PartWriter")
	}
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
	x.rest(s, r, d, off, off)
	if n := try.TryWritePart([][]byte{{1}}); n != 0 {
		x.fatal("TryWritePart has written %d bytes to a closed pipe", n)
	}
}
