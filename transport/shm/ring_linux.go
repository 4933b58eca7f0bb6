package shm

import (
	"errors"
	"io"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/nexar-go/nexar/internal/ntstore"
)

const (
	// ringBytes is the size of the ring of a pipe, and largeBytes that of a large pipe. When
	// the writer wraps around, the reader's private cache should no longer hold the line:
	// taking a line from there costs several times as much as the copy.
	ringBytes  = 128 << 10
	largeBytes = 1 << 20
	// A peer may choose any power of two within these bounds.
	ringBytesMin = 4 << 10
	ringBytesMax = 16 << 20
	// headerBytes is the size of the header. The records behind it begin on a
	// page for every size of pages.
	headerBytes = 64 << 10
	// Records begin on a cache line. A write makes records of recordBytesMin to recordBytesMax, so that the reader copies
	// one while the writer copies the next.
	lineBytes      = 64
	lengthBytes    = 8
	recordBytesMin = 4 << 10
	recordBytesMax = 16 << 10
)

// closed is the length of the record at the end of a pipe.
const closed = 1 << 63

// Offsets in the header. The words are so far apart that no two share a prefetched line.
const (
	headAt         = 128
	readerAsleepAt = 256
	readerLeftAt   = 260
	writerAsleepAt = 384
)

var (
	errHead   = errors.New("its read position is beyond the written records, or has decreased")
	errLength = errors.New("the length of its record exceeds the room")
)

// A ring is memory that two processes have mapped, a writer and a reader. It has records: a length and as many bytes. The
// reader polls the length, which the writer stores last, so that a short record arrives with a single cache line. The length behind
// the last record is 0. A position counts the bytes of records and the gaps between them, and lies in data at its remainder by the size.
type ring struct {
	memory []byte // header and data
	data   []byte

	head *atomic.Uint64 // the position of the first record that is not read; set by the reader

	// Flags of a sleeping reader and a sleeping writer. Each is set by the side that goes
	// to sleep, and reset by the other side, which then signals the eventfd.
	readerAsleep, writerAsleep *atomic.Uint32

	// readerLeft is set by a reader that closes. It shares its cache line with
	// readerAsleep, which the writer reads in any case, unlike head, which often changes.
	readerLeft *atomic.Uint32
}

// newRing returns the ring in mapped memory.
func newRing(memory []byte) ring {
	return ring{
		memory:       memory,
		data:         memory[headerBytes:],
		head:         (*atomic.Uint64)(unsafe.Pointer(&memory[headAt])),
		readerAsleep: (*atomic.Uint32)(unsafe.Pointer(&memory[readerAsleepAt])),
		writerAsleep: (*atomic.Uint32)(unsafe.Pointer(&memory[writerAsleepAt])),
		readerLeft:   (*atomic.Uint32)(unsafe.Pointer(&memory[readerLeftAt])),
	}
}

// at returns the offset of a position in data.
func (r *ring) at(i uint64) uint64 { return i & uint64(len(r.data)-1) }

// length returns the length of the record at a position, also for a position that a peer has made up.
func (r *ring) length(i uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.data[r.at(i)&^(lineBytes-1)]))
}

// room returns the bytes that a record at a position can have. Records do not wrap around.
func (r *ring) room(i uint64) []byte { return r.data[r.at(i)+lengthBytes:] }

// span returns the number of bytes from a record of n bytes to the next record.
func span(n int) uint64 { return (uint64(n) + lengthBytes + lineBytes - 1) &^ (lineBytes - 1) }

// spanMax returns an upper bound of the span of records that have n bytes together, and of the length behind them.
func spanMax(n int) uint64 { return uint64(n + n/256 + 4*lineBytes) }

// A ringWriter is the writing side of a ring. It keeps its own position, and checks that of the peer.
type ringWriter struct {
	ring
	written uint64 // the position of the next record
	read    uint64 // the last value of head
	copier  ntstore.Writer
	fence   atomic.Uint32 // changed to order the accesses of this side
}

// unread returns the span of the unread records, or any number if the peer has set an invalid position.
func (w *ringWriter) unread() uint64 { return w.written - w.head.Load() }

// free returns the number of bytes that can be written. It may be too small, but then it is at least want.
func (w *ringWriter) free(want int) (n int, err error) {
	known := func() int {
		free := len(w.data) - lineBytes - int(w.written-w.read)
		return max(free-(free/recordBytesMin+2)*lengthBytes, 0)
	}
	if n = known(); n >= want {
		return n, nil
	}
	head := w.head.Load()
	if head < w.read || head > w.written || head%lineBytes != 0 {
		return 0, errHead
	}
	w.read = head
	return known(), nil
}

// close marks the end of the pipe.
func (w *ringWriter) close() { w.length(w.written).Swap(closed) }

// write appends the first n bytes of pieces. The ring must have room for them. It calls written after each record.
//
// The peer polls the line of the length, and takes it back between two stores that are not next to each other. So the
// bytes behind that line come first, then the length of the next record, and its own bytes with the length last.
func (w *ringWriter) write(pieces [][]byte, n int, written func()) {
	step := min(max(1<<bits.Len(uint(n))>>3, recordBytesMin), recordBytesMax) // a quarter of n, or less
	for done := 0; done < n; {
		length, p := w.length(w.written), w.room(w.written)
		p = p[:min(n-done, step-int(w.written)&(step-1)-lengthBytes)]
		w.written += span(len(p))
		k := min(len(p), lineBytes-lengthBytes)
		w.gather(p[k:], pieces, done+k)
		*(*uint64)(unsafe.Pointer(w.length(w.written))) = 0
		w.gather(p[:k], pieces, done)
		w.publish(length, len(p))
		done += len(p)
		written()
	}
}

// publish makes the bytes of a record visible, then its length, and then what this side reads or writes next.
func (w *ringWriter) publish(length *atomic.Uint64, n int) {
	if runtime.GOARCH != "amd64" {
		length.Swap(uint64(n)) // not Store: see park
		return
	}
	// Here ordinary stores become visible in their order. An atomic one would wait for those to other lines, while the peer
	// takes the line back.
	*(*uint64)(unsafe.Pointer(length)) = uint64(n)
	w.fence.Swap(0)
}

// gather copies the bytes of pieces from an offset to p.
func (w *ringWriter) gather(p []byte, pieces [][]byte, from int) {
	for i := 0; len(p) > 0; i++ {
		if from >= len(pieces[i]) {
			from -= len(pieces[i])
			continue
		}
		n := min(len(p), len(pieces[i])-from)
		w.copier.Write(p[:n], pieces[i][from:from+n])
		p, from = p[n:], 0
	}
}

// A ringReader is the reading side of a ring.
type ringReader struct {
	ring
	read uint64 // the position of the current record
	next uint64 // the position of the record behind it
	rest []byte // the unread bytes of it
}

// peek returns the next bytes, at most limit. It returns none if the ring is empty, and io.EOF at the end of the pipe.
func (r *ringReader) peek(limit int) ([]byte, error) {
	if len(r.rest) == 0 {
		n, room := r.length(r.read).Load(), r.room(r.read)
		switch {
		case n == 0:
			return nil, nil
		case n == closed:
			return nil, io.EOF
		case n > uint64(len(room)):
			return nil, errLength
		}
		r.rest, r.next = room[:n], r.read+span(int(n))
	}
	return r.rest[:min(limit, len(r.rest))], nil
}

// drop removes n of the bytes that peek has returned. It reports whether a sleeping writer should be woken: when the ring is empty or
// a quarter of it was read, so that the writer does not sleep again immediately.
func (r *ringReader) drop(n int) (wake bool) {
	if r.rest = r.rest[n:]; len(r.rest) > 0 {
		return false
	}
	wake = r.read^r.next >= uint64(len(r.data)/4)
	r.read = r.next
	r.head.Swap(r.read) // not Store: see park
	return wake || r.writerAsleep.Load() != 0 && r.length(r.read).Load() == 0
}
