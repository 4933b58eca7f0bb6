package shm

import (
	"errors"
	"sync/atomic"
	"unsafe"

	"github.com/nexar-go/nexar/internal/ntstore"
)

const (
	// ringBytes is how much a pipe holds, and roomyBytes one with more room. Until that
	// comes round, the reader's processor should have lost what it has read from a cache
	// of its own: to take it away from there costs several times as much as the copy.
	ringBytes  = 128 << 10
	roomyBytes = 1 << 20
	// Those of a peer may differ: any power of two within these bounds.
	ringBytesMin = 4 << 10
	ringBytesMax = 16 << 20
	// headerBytes is what the indexes take, before the bytes themselves, which begin a
	// page however large pages are.
	headerBytes = 64 << 10
	// pieceBytesMax bounds what is written or shown at once, so that one side
	// works on one part of the ring while the other works on the next.
	pieceBytesMax = 32 << 10
	// stepBytes is how much is written before it is shown.
	stepBytes = 16 << 10
)

// closed is set in an index by the side that writes it when it will not
// change any more.
const closed = 1 << 63

// The indexes lie so far apart that no two are fetched together.
const (
	tailAt         = 0
	headAt         = 128
	readerAsleepAt = 256
	readerLeftAt   = 260
	writerAsleepAt = 384
)

var (
	errHead = errors.New("it has read more than was written, or less than before")
	errTail = errors.New("it has written more than there is room for, or less than before")
)

// A ring is memory that two processes have mapped, one of which writes to it
// and one reads. Byte i of the pipe lies at i modulo the size.
type ring struct {
	memory []byte // all of it
	data   []byte

	tail *atomic.Uint64 // how many bytes have been written, by the writer
	head *atomic.Uint64 // how many have been read, by the reader

	// Each is set by the side that goes to sleep, and reset by the other
	// one, which then rings its bell.
	readerAsleep, writerAsleep *atomic.Uint32

	// readerLeft is set by a reader that closes. It lies where a writer looks
	// in any case, unlike head, which changes all the time.
	readerLeft *atomic.Uint32
}

// newRing makes a ring of mapped memory.
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

// at is where byte i lies.
func (r *ring) at(i uint64) uint64 { return i & uint64(len(r.data)-1) }

// A ringWriter is the writing side of a ring. What it knows of its own index is
// never read back, and what the peer says of the other is checked.
type ringWriter struct {
	ring
	written uint64
	read    uint64 // at least so many, when last looked
	pen     ntstore.Pen
}

// isRead reports whether all has been read that was written.
func (w *ringWriter) isRead() bool { return w.head.Load()&^closed == w.written }

// room is how many bytes can be written, at least want unless there are fewer.
// The word is what the index of the reader was, to wait for another one.
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

// close tells the reader that no more will be written.
func (w *ringWriter) close() { w.tail.Or(closed) }

// write appends p, for which there is room.
func (w *ringWriter) write(p []byte) {
	w.put(p)
	w.tail.Add(uint64(len(p)))
}

// writeAll appends n bytes of pieces, for which there is room. Whenever the reader can
// see more of them it calls shown.
func (w *ringWriter) writeAll(pieces [][]byte, n int, shown func()) {
	hidden := 0
	for _, p := range pieces {
		for p = p[:min(len(p), n)]; len(p) > 0; {
			k := min(len(p), stepBytes)
			w.put(p[:k])
			p, n = p[k:], n-k
			if hidden += k; hidden >= stepBytes || n == 0 {
				w.tail.Add(uint64(hidden))
				hidden = 0
				shown()
			}
		}
	}
}

// put copies p to where the next bytes are written.
func (w *ringWriter) put(p []byte) {
	if len(p) >= stepBytes {
		w.pen.Turn()
	}
	k := int(min(uint64(len(p)), uint64(len(w.data))-w.at(w.written)))
	w.pen.Write(w.data[w.at(w.written):][:k], p[:k])
	if k < len(p) {
		w.pen.Write(w.data[:len(p)-k], p[k:])
	}
	w.written += uint64(len(p))
}

// A ringReader is the reading side of a ring.
type ringReader struct {
	ring
	read    uint64
	written uint64 // at least so many, when last looked
}

// peek returns the next bytes as far as they lie in one piece, at most limit.
// If there are none it looks anew. The word is what the index of the writer
// was.
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

// close tells the writer that the rest will not be read.
func (r *ringReader) close() {
	r.readerLeft.Store(1)
	r.head.Or(closed)
}

// drop gives n bytes back to the writer.
func (r *ringReader) drop(n int) {
	r.read += uint64(n)
	r.head.Add(uint64(n))
}

// lowWater reports whether it is worth while to wake a writer: it then has
// something to do, and does not sleep again at once.
func (r *ringReader) lowWater() bool {
	return r.written-r.read <= uint64(len(r.data))*3/4
}
