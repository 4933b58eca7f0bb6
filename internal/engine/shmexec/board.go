// Package shmexec carries collectives out in memory that all ranks of a host share.
//
// A Board is that memory: each rank has an area that it alone writes and all
// others read. Instead of sending a message, a rank writes the payload to its own
// area, once for all receivers, and raises a counter. A receiver
// waits for the counter and uses the payload in place.
// No lock is taken, so that a rank that dies at any
// instruction leaves nothing unfinished but its own area.
//
// Most callers Compile the plans of all ranks once, make a Board with New, and give its
// Executor to the communicator. The vector is cut into pieces, so that what
// ranks read of the board is still in a cache: a plan runs once for each piece,
// and a rank may be Depth pieces ahead of those that read from it.
//
// One goroutine at a time runs collectives on a Board. A run ends early only if it fails;
// from then on the Board must not be used. Progress, Waiting,
// Left, Finished and Interrupt may be called by any goroutine. Leave gives the
// memory back, when no collective runs, or will run.
//
// A rank reads counters of other areas, which it compares, and
// payloads of lengths that it has computed itself: a rank that writes nonsense
// makes results wrong or others wait, and nothing else.
package shmexec

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/affinity"
	"github.com/nexar-go/nexar/internal/ntstore"
	"github.com/nexar-go/nexar/internal/spin"
)

// Depth is the number of pieces that a rank may be ahead of its readers.
const Depth = 2

const (
	line = 64 // a cache line, in bytes

	// An area begins with these lines. Each is written by one rank, for one
	// purpose.
	takenAt  = 0 * line     // the number of pieces that the rank has finished
	callsAt  = 8            // the number and the fingerprint of its last calls
	asleepAt = 1 * line     // the rank that it sleeps for, plus 1
	runsAt   = asleepAt + 4 // the processor that it runs on, plus 1
	slotsAt  = 2 * line
	ringAt   = slotsAt + Depth*line

	// A slot is a line: the counter, the fingerprint, and payloads that are short
	// enough to come with them.
	countAt = 0
	printAt = 4
	shortAt = 8
)

// Longer payloads lie in a ring, one behind the other, ringPieces of the longest
// in a round. A line that another processor has read is written several times as
// fast when that has it no longer in a cache of its own: together with the vectors
// that come and go there, a round is more than what such a cache holds, and less
// than the one does that processors share.
const ringPieces = 4

const _ = uint(ringPieces - Depth - 1) // Depth + 1 pieces lie there at a time

// pageBytes is the size of a page of memory.
const pageBytes = 4 << 10

// callsKept is the number of the last calls that a rank shows: it may be ahead of others,
// which look for an earlier one.
const callsKept = Depth + 2

// shortMax is the number of bytes of payload that fit next to the counter.
const shortMax = line - shortAt

// AreaSize is the size of the area of a rank on a Board with so many bytes for
// the payloads of a piece.
func AreaSize(pieceBytes int) int { return ringAt + ringPieces*pieceBytes }

// CounterBytes is the number of bytes at the beginning of an area that hold counters.
// All ranks may read them from the start.
const CounterBytes = ringAt

// Clear makes an area that was used before ready for another Board. Payloads may stay.
func Clear(area []byte) { clear(area[:min(ringAt, len(area))]) }

// PieceBytes returns the number of bytes of payload of a piece that an area has room for.
func PieceBytes(areaSize int) int {
	return max(0, (areaSize-ringAt)/ringPieces/line*line)
}

// Config configures a Board.
type Config struct {
	// Rank is this rank, and Areas the memory of all, aligned to cache lines
	// and zero, or cleared. That of Rank is written.
	Rank  int
	Areas [][]byte
	// Sleep blocks while word has the value old, until Wake, or for d at the
	// most. It may return early. Wake wakes all that sleep on word.
	Sleep func(word *atomic.Uint32, old uint32, d time.Duration)
	Wake  func(word *atomic.Uint32)
	// Reserve, if not nil, has the system provide memory for the whole area of
	// Rank. It is called before the first payload that does not fit beside a
	// counter; memory for the counters must be there from the start.
	Reserve func() error
	// Release, if not nil, is called when Areas are no longer needed.
	Release func()
	// Stream, if not nil, copies past the caches of the processor. What is stored
	// after that is seen after it.
	Stream func(dst, src []byte)
	// Processors is the number of processors that every rank may use, the same for
	// all ranks; by default those of this process.
	Processors int
	// SameProcess says that all ranks are goroutines of this process.
	SameProcess bool
}

// A Board is one rank's view of the memory that ranks share.
type Board struct {
	cfg        Config
	n          int
	pieceBytes int
	yield      func() // gives the processor to another rank
	yields     int    // the number of yields before this rank sleeps
	crowded    bool   // there are more ranks than processors
	alone      bool   // this rank seems to have a processor of its own
	waits      int    // waits that took more than a few reads
	yieldTime  time.Duration
	place      *affinity.Place // nil if all ranks are in this process

	taken, asleep *atomic.Uint32   // this rank's
	takens        []*atomic.Uint32 // of all ranks
	asleeps       []*atomic.Uint32

	calls    uint32   // that were made
	count    uint32   // of the posts before the next collective
	pieces   uint32   // that this rank has finished
	known    []uint32 // pieces that others are known to have finished
	strips   []strip
	sleepsOn atomic.Pointer[atomic.Uint32] // the counter that this rank sleeps on

	ring    int // where the next payloads lie that are not short
	body    int // where those of this piece do
	stride  int // how far apart they lie
	room    int // for all of them
	stores  ntstore.Pen
	touched bool // the ring has memory
	left    bool

	mu      sync.Mutex
	awaited awaited
}

// awaited is the value of a counter of a rank that the board waits for.
type awaited struct {
	rank  int
	at    *atomic.Uint32 // nil if it does not wait
	value uint32
}

func (b *Board) setAwaited(a awaited) {
	b.mu.Lock()
	b.awaited = a
	b.mu.Unlock()
}

// New makes a Board. All ranks make theirs of the same memory.
func New(cfg Config) *Board {
	b := &Board{cfg: cfg, n: len(cfg.Areas), known: make([]uint32, len(cfg.Areas)), yield: spin.Within, yields: yieldsWithin, yieldTime: yieldTime}
	if b.cfg.Processors == 0 {
		b.cfg.Processors = Processors()
	}
	b.crowded = b.n > b.cfg.Processors
	if !cfg.SameProcess {
		b.yield, b.yields = spin.Across(), yieldsAcross
		b.place = b.newPlace()
	}
	b.stores = ntstore.New(cfg.Stream)
	b.pieceBytes = math.MaxInt
	for _, area := range cfg.Areas {
		b.pieceBytes = min(b.pieceBytes, PieceBytes(len(area)))
	}
	b.find()
	if b.n > crowdMost*b.cfg.Processors {
		b.yields, b.yieldTime = yieldsCrowd, 0
	}
	return b
}

// find finds the counters in the areas.
func (b *Board) find() {
	b.takens, b.asleeps = b.words(takenAt), b.words(asleepAt)
	b.taken, b.asleep = b.takens[b.cfg.Rank], b.asleeps[b.cfg.Rank]
}

// newPlace makes the place of this rank. All ranks show each other their processors.
func (b *Board) newPlace() *affinity.Place {
	others := b.words(runsAt)
	own := others[b.cfg.Rank]
	others = slices.Delete(others, b.cfg.Rank, b.cfg.Rank+1)
	return affinity.New(affinity.Config{
		Ranks: b.n, Processors: b.cfg.Processors, Others: len(others),
		Show: func(cpu int) {
			if shown := uint32(cpu + 1); own.Load() != shown {
				own.Store(shown)
			}
		},
		Where: func(on []int) {
			for i, other := range others {
				on[i] = int(other.Load()) - 1
			}
		},
	})
}

// Place is that of this rank, or nil if all ranks are in this process.
func (b *Board) Place() *affinity.Place { return b.place }

// call returns where a rank shows the fingerprint of the call with a number.
func (b *Board) call(rank int, number uint32) *atomic.Uint64 {
	area := b.cfg.Areas[rank]
	return (*atomic.Uint64)(unsafe.Pointer(&area[callsAt+8*(number%callsKept)]))
}

// Processors returns the number of processors that this process may use.
func Processors() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }

// Processors returns the number of processors that every rank may use.
func (b *Board) Processors() int { return b.cfg.Processors }

// PieceBytes returns the number of bytes of payload that a rank may post in a piece.
func (b *Board) PieceBytes() int { return b.pieceBytes }

// word is the counter at an offset of an area.
func word(area []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&area[at]))
}

// words are the counters at an offset of all areas.
func (b *Board) words(at int) (words []*atomic.Uint32) {
	for _, area := range b.cfg.Areas {
		words = append(words, word(area, at))
	}
	return words
}

// slot is where in every area the slot of a piece is.
func (b *Board) slot(piece uint32) int { return slotsAt + int(piece%Depth)*line }

// turn finds room in every area for the payloads of a piece, apart from those of the
// piece before, which slower ranks may still read. When the ring wraps around, these
// lie in its second half.
func (b *Board) turn(room int) error {
	b.stores.Turn()
	if !b.touched {
		if err := b.prefault(); err != nil {
			return &MemoryError{err}
		}
	}
	if b.ring+room > ringPieces*b.pieceBytes {
		b.ring = 0
	}
	b.body = ringAt + b.ring
	b.ring += (room + line - 1) / line * line
	return nil
}

// prefault has the system provide memory for the ring, which no rank reads yet: page
// faults one by one would take longer, for this rank and for all readers.
func (b *Board) prefault() error {
	if b.cfg.Reserve != nil {
		if err := b.cfg.Reserve(); err != nil {
			return err
		}
	}
	ring := b.cfg.Areas[b.cfg.Rank][ringAt:]
	for i := 0; i < len(ring); i += pageBytes {
		ring[i] = 0
	}
	b.touched = true
	return nil
}

// Progress returns a number that changes as the collective makes progress.
func (b *Board) Progress() uint64 {
	p := uint64(b.taken.Load())
	for s := range uint32(Depth) {
		p += uint64(word(b.cfg.Areas[b.cfg.Rank], b.slot(s)+countAt).Load()) << 32
	}
	return p
}

// Within reports whether all ranks are goroutines of this process.
func (b *Board) Within() bool { return b.cfg.SameProcess }

// Waiting returns the rank that the board waits for, or -1.
func (b *Board) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awaited.at == nil {
		return -1
	}
	return b.awaited.rank
}

// Stuck reports whether the board waits for a post that a rank will not make: it has
// finished all its part up to a mark without it, as part of another call.
func (b *Board) Stuck(rank int, mark uint32) bool {
	if !b.Finished(rank, mark) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.awaited
	return a.at != nil && a.rank == rank && int32(a.at.Load()-a.value) < 0
}

// Finished reports whether a rank has done all its part up to a mark: the number
// of pieces of all collectives until then, which wraps around.
func (b *Board) Finished(rank int, mark uint32) bool {
	return int32(b.takens[rank].Load()-mark) >= 0
}

// Left returns the number of pieces up to a mark that this rank has not finished.
func (b *Board) Left(mark uint32) int { return max(0, int(int32(mark-b.taken.Load()))) }

// Leave gives the memory back, once. The other methods return the same as before; they
// must not be called meanwhile.
func (b *Board) Leave() {
	if b.left {
		return
	}
	b.left = true
	b.place.Leave()
	areas := make([][]byte, b.n)
	for i, taken := range b.takens {
		words := make([]uint64, ringAt/8)
		areas[i] = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), ringAt)
		word(areas[i], takenAt).Store(taken.Load())
	}
	copy(areas[b.cfg.Rank], b.cfg.Areas[b.cfg.Rank])
	b.cfg.Areas = areas
	b.find()
	if b.cfg.Release != nil {
		b.cfg.Release()
	}
}

// Interrupt wakes the rank, if it sleeps, so that it notices a failure. If it is just
// about to sleep it does so after sleepMax at the latest.
func (b *Board) Interrupt() {
	if w := b.sleepsOn.Load(); w != nil {
		b.cfg.Wake(w)
	}
}
