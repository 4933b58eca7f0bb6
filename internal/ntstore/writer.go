// Package ntstore copies data to shared memory, with non-temporal stores where these are
// faster.
//
// The readers of shared memory hold its lines in their caches. If these are far away, for
// example on another socket, an ordinary store waits long for its line. Non-temporal stores,
// which bypass the caches, are several times as fast then, and slower otherwise. A [Writer]
// decides by measuring its own copies, repeatedly, since the system may move the process.
//
// Keep one Writer for each ring in shared memory, call Turn before each part, and then Write. A
// Writer is for one goroutine at a time.
package ntstore

import "time"

const (
	// longBytes is the minimum length of copies that depend on the kind of stores.
	longBytes = 16 << 10
	// slowKiB is the maximum time of a fast copy per KiB (4 GB/s). Ordinary stores are at least
	// twice as fast if the processor shares a cache with the readers, and half as fast
	// otherwise.
	slowKiB = 256 * time.Nanosecond
	// One copy in trialEvery is measured. After trials slow ones in a row, the Writer
	// switches to non-temporal stores.
	trialEvery = 4
	trials     = 3
	// turnsFirst and turnsMax are the numbers of turns with non-temporal stores, at first and
	// at most.
	turnsFirst = 64
	turnsMax   = 4096
)

// A Writer copies data to shared memory.
type Writer struct {
	stream func(dst, src []byte) // copies with non-temporal stores; nil if not available
	writes int                   // long ones
	slow   int                   // measured slow copies in a row
	turns  int                   // remaining turns with non-temporal stores
	next   int                   // the number of turns the next time
}

// New returns a Writer. Stream copies with non-temporal stores that become visible before later
// stores; it is nil if that is not possible.
func New(stream func(dst, src []byte)) Writer { return Writer{stream: stream} }

// Turn begins the next part.
func (w *Writer) Turn() {
	if w.turns > 0 {
		w.turns--
	}
}

// Write copies src to dst, which has the same length.
func (w *Writer) Write(dst, src []byte) {
	switch {
	case len(src) < longBytes:
		copy(dst, src)
	case w.turns > 0:
		w.stream(dst, src)
	default:
		w.try(dst, src)
	}
}

// Put is Write for a short piece of long data.
func (w *Writer) Put(dst, src []byte) {
	if w.turns > 0 {
		w.stream(dst, src)
		return
	}
	copy(dst, src)
}

// Pass makes the Writer use non-temporal stores for a number of turns, if available.
func (w *Writer) Pass(turns int) {
	if w.stream != nil {
		w.turns = turns
	}
}

// try copies with ordinary stores, and measures some of the copies.
func (w *Writer) try(dst, src []byte) {
	if w.writes++; w.writes%trialEvery != 0 {
		copy(dst, src)
		return
	}
	began := time.Now()
	copy(dst, src)
	w.learn(len(src), time.Since(began))
}

func (w *Writer) learn(bytes int, took time.Duration) {
	if took <= time.Duration(bytes>>10)*slowKiB {
		w.slow, w.next = 0, 0
		return
	}
	if w.slow++; w.slow == trials {
		w.slow = 0
		turns := max(w.next, turnsFirst)
		w.Pass(turns)
		w.next = min(2*turns, turnsMax)
	}
}
