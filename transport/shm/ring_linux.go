package shm

import (
	"errors"
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
	// headerBytes is the size of the header with the indexes. The data behind it begin on a
	// page for every size of pages.
	headerBytes = 64 << 10
	// pieceBytesMax is the longest piece that is written or viewed at a time, so that both
	// sides work at the same time, on different parts of the ring.
	pieceBytesMax = 32 << 10
	// stepBytes is the number of bytes after which the writer updates its index.
	stepBytes = 16 << 10
)

// closed is the bit of an index that its writer sets when the index will not change any
// more.
const closed = 1 << 63

// Offsets in the header. The indexes are so far apart that no two share a prefetched line.
const (
	tailAt         = 0
	headAt         = 128
	readerAsleepAt = 256
	readerLeftAt   = 260
	writerAsleepAt = 384
)

var (
	errHead = errors.New("its read index is beyond the written bytes, or has decreased")
	errTail = errors.New("its write index is beyond the room of the ring, or has decreased")
)

// A ring is memory that two processes have mapped, a writer and a reader. Byte i of the pipe
// lies at i modulo the size.
type ring struct {
	memory []byte // header and data
	data   []byte

	tail *atomic.Uint64 // the number of bytes written; set by the writer
	head *atomic.Uint64 // the number of bytes read; set by the reader

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
		tail:         (*atomic.Uint64)(unsafe.Pointer(&memory[tailAt])),
		head:         (*atomic.Uint64)(unsafe.Pointer(&memory[headAt])),
		readerAsleep: (*atomic.Uint32)(unsafe.Pointer(&memory[readerAsleepAt])),
		writerAsleep: (*atomic.Uint32)(unsafe.Pointer(&memory[writerAsleepAt])),
		readerLeft:   (*atomic.Uint32)(unsafe.Pointer(&memory[readerLeftAt])),
	}
}

// at returns the position of byte i in data.
func (r *ring) at(i uint64) uint64 { return i & uint64(len(r.data)-1) }

// A ringWriter is the writing side of a ring. It keeps its own index, which it never reads
// from shared memory, and checks the index of the peer.
type ringWriter struct {
	ring
	written uint64
	read    uint64 // the last value of head
	copier  ntstore.Writer
}

// isRead reports whether the ring is empty.
func (w *ringWriter) isRead() bool { return w.unread() == 0 }

// unread returns the number of bytes that the reader has not read, or any number if the peer has set an invalid index.
func (w *ringWriter) unread() uint64 { return w.written - w.head.Load()&^closed }

// room returns the number of bytes that can be written. It may be too small, but then it is
// at least want. The word is the value of head, for waiting until it changes.
func (w *ringWriter) room(want int) (n int, word uint64, err error) {
	size := uint64(len(w.data))
	if n := size - (w.written - w.read); n >= uint64(want) {
		return int(n), w.read, nil
	}
	word = w.head.Load()
	read := word &^ closed
	if read < w.read || read > w.written {
		return 0, word, errHead
	}
	w.read = read
	return int(size - (w.written - read)), word, nil
}

// close marks the end of the pipe.
func (w *ringWriter) close() { w.tail.Or(closed) }

// write appends p. The ring must have room for it.
func (w *ringWriter) write(p []byte) {
	w.put(p)
	w.tail.Add(uint64(len(p)))
}

// writeAll appends the first n bytes of pieces. The ring must have room for them. It updates
// tail every stepBytes, and calls updated after each update.
func (w *ringWriter) writeAll(pieces [][]byte, n int, updated func()) {
	pending := 0
	for _, p := range pieces {
		for p = p[:min(len(p), n)]; len(p) > 0; {
			k := min(len(p), stepBytes)
			w.put(p[:k])
			p, n = p[k:], n-k
			if pending += k; pending >= stepBytes || n == 0 {
				w.tail.Add(uint64(pending))
				pending = 0
				updated()
			}
		}
	}
}

// put copies p to the ring without an update of tail.
func (w *ringWriter) put(p []byte) {
	k := int(min(uint64(len(p)), uint64(len(w.data))-w.at(w.written)))
	w.copier.Write(w.data[w.at(w.written):][:k], p[:k])
	if k < len(p) {
		w.copier.Write(w.data[:len(p)-k], p[k:])
	}
	w.written += uint64(len(p))
}

// A ringReader is the reading side of a ring.
type ringReader struct {
	ring
	read    uint64
	written uint64 // the last value of tail
}

// peek returns the next contiguous bytes, at most limit. It reads tail only when all bytes
// known before are read; the word is the value of tail then.
func (r *ringReader) peek(limit int) (piece []byte, word uint64, err error) {
	if r.written == r.read {
		word = r.tail.Load()
		written := word &^ closed
		if written < r.written || written > r.read+uint64(len(r.data)) {
			return nil, word, errTail
		}
		r.written = written
	}
	at := r.at(r.read)
	n := min(uint64(limit), pieceBytesMax, r.written-r.read, uint64(len(r.data))-at)
	return r.data[at : at+n], word, nil
}

// close tells the writer that the reader has closed the pipe.
func (r *ringReader) close() {
	r.readerLeft.Store(1)
	r.head.Or(closed)
}

// drop frees n bytes for the writer.
func (r *ringReader) drop(n int) {
	r.read += uint64(n)
	r.head.Add(uint64(n))
}

// lowWater reports whether the ring has enough room to wake a sleeping writer, so that it
// does not sleep again immediately.
func (r *ringReader) lowWater() bool {
	return r.written-r.read <= uint64(len(r.data))*3/4
}
