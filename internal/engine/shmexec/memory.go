// Package shmexec executes collectives in memory that the ranks of a host share.
//
// Each rank has an area, which it alone writes and all others read. In place of a message, a
// rank copies the payload to its own area, once for all receivers, and raises a counter: it
// posts. A receiver waits for the counter and uses the payload in place. There are no locks in
// shared memory: a rank may die at any instruction, and only its own area is incomplete.
//
// Callers [Compile] the plans of all ranks once, create a [Memory] with [New], and give its
// [Memory.Executor] to the communicator. A plan runs once for each piece of the vector, so that
// payloads are still in a cache when ranks read them. A rank may be Depth pieces ahead of its readers.
//
// One goroutine at a time runs collectives. A run ends early only if it fails; the Memory must
// not be used after that. Methods that observe or interrupt a run may be called concurrently with it:
// progress, waiting, isStuck, hasFinished, remaining and interrupt.
//
// A rank reads counters of other areas, which it compares, and payloads. It computes their
// lengths itself. A rank that writes invalid data makes results wrong or others wait, and
// nothing else.
//
// # Parts
//
// The Memory of a communicator is one of a few dozen parts of the memory that a node shares with its host (Allocator). Ranks negotiate
// a part that none of them uses, clear it when all have acquired it, and release it when they close the communicator. A used part serves
// again only a communicator that contains every rank of the previous one, since a slow rank may still read it; ranks that have left, and
// those of ended processes, do not count. Such a part is taken before an unused one: the pages of that would be allocated and kept. After
// some dozens of groups that do not contain each other no part is left, and new communicators use links.
//
// Up to 256 ranks share memory. A rank reads the counters of the ranks that its plan names, and of its two neighbors. Pieces have up to
// 256 KiB of payload, in a ring, written with non-temporal stores where caches are far apart.
package shmexec

import (
	"context"
	"encoding/binary"
	"runtime"
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

	// An area begins with these lines. Each has one purpose, so that ranks do not take the
	// line from each other for different reasons.
	takenAt  = 0 * line     // the number of pieces that the rank has finished
	callsAt  = 8            // the sequence numbers and fingerprints of its last calls
	asleepAt = 1 * line     // the rank that it sleeps for, plus 1
	runsAt   = asleepAt + 4 // the processor that it runs on, plus 1
	cellsAt  = 2 * line
	ringAt   = cellsAt + Depth*line

	// A cell is one line: the counter, the fingerprint, and short payloads.
	countAt = 0
	printAt = 4
	shortAt = 8
)

// Longer payloads lie in a ring with room for ringPieces pieces. To write a line takes several
// times as long while another processor holds it in its private cache. Together with the
// vectors, a round of the ring exceeds such a cache, but not the cache that processors share.
const ringPieces = 4

const _ = uint(ringPieces - Depth - 1) // the ring holds Depth + 1 pieces at a time

// pageBytes is the size of a page of memory.
const pageBytes = 4 << 10

// callsKept is the number of recent calls that an area shows: a rank may be ahead of others,
// which compare an earlier call.
const callsKept = Depth + 2

// shortMax is the length in bytes of the payloads that fit beside the counter.
const shortMax = line - shortAt

// AreaSize returns the size of an area with room for pieceBytes of payload in each piece.
func AreaSize(pieceBytes int) int { return ringAt + ringPieces*pieceBytes }

// CounterBytes is the length of the counters at the beginning of an area. All ranks may read
// them from the start.
const CounterBytes = ringAt

// Clear resets the counters of a used area for another Memory. Payloads may stay.
func Clear(area []byte) { clear(area[:min(ringAt, len(area))]) }

// PieceBytes returns the bytes of payload that an area has room for in each piece.
func PieceBytes(areaSize int) int {
	return max(0, (areaSize-ringAt)/ringPieces/line*line)
}

// Config configures a Memory.
type Config struct {
	// Rank is this rank. Areas has the area of each rank, of equal lengths, aligned to cache
	// lines, and zero or cleared. Only the area of Rank is written. The areas of Rank and of its
	// [Neighbors] are required; those of other ranks may be nil.
	Rank  int
	Areas [][]byte
	// Attach returns the area of a rank that is nil in Areas. It is called before the first
	// collective with a plan that needs it, on the goroutine of that collective, and again after an error.
	Attach func(rank int) ([]byte, error)
	// Sleep blocks while word has the value old, until Wake, and at most for d. It may
	// return early. Wake wakes all sleepers on word.
	Sleep func(word *atomic.Uint32, old uint32, d time.Duration)
	Wake  func(word *atomic.Uint32)
	// Reserve, if not nil, reserves memory for the whole area of Rank. It is called before
	// the first payload that does not fit beside a counter. Memory for the counters must
	// be reserved from the start.
	Reserve func() error
	// Release, if not nil, is called when Areas are no longer needed.
	Release func()
	// Stream, if not nil, copies with non-temporal stores. Later stores become visible
	// after them.
	Stream func(dst, src []byte)
	// Processors is the number of processors that the ranks share, the same for
	// all ranks; by default those of this process.
	Processors int
	// SameProcess says that all ranks are goroutines of this process.
	SameProcess bool
}

// A Memory is one rank's view of the shared memory.
type Memory struct {
	cfg          Config
	n            int
	pieceBytes   int
	yield        func() // yields the processor to another rank
	yields       int    // the number of yields before this rank sleeps
	crowded      bool   // there are more ranks than processors
	hasProcessor bool   // this rank seems to have a processor of its own
	waits        int    // the number of waits that took more than a few reads
	yieldTime    time.Duration
	sleepFirst   time.Duration   // the time until the first check of a sleeping rank
	place        *affinity.Place // nil if all ranks are in this process

	taken, asleep *atomic.Uint32 // this rank's
	// Of all ranks; nil without an area. A collective changes them and cfg.Areas with mu, and
	// reads them without it.
	takens, asleeps, runs []*atomic.Uint32
	attached              *Program // all areas that it needs are attached

	calls     uint32          // the number of calls
	count     uint32          // the value of the counters before the next piece
	pieces    int64           // the number of pieces that this rank has finished; areas show its lower 32 bits
	known     []int64         // the number of pieces that each rank has finished, at least; never refreshed for some
	neighbors []int           // see Neighbors
	last      [Depth]*Program // by cell, that of its last piece
	strips    []strip
	sleepsOn  atomic.Pointer[atomic.Uint32] // the counter that this rank sleeps on

	countUnit, printUnit uint64 // see headUnit

	ring    int // the position in the ring for the next payloads
	body    int // the offset of the payloads of the current piece
	stores  ntstore.Writer
	touched bool // memory is reserved for the ring
	left    bool

	mu      sync.Mutex
	awaited awaited
}

// awaited is the counter value that the rank waits for.
type awaited struct {
	rank  int
	at    *atomic.Uint32 // nil if the rank does not wait
	value uint32
}

func (m *Memory) setAwaited(a awaited) {
	m.mu.Lock()
	m.awaited = a
	m.mu.Unlock()
}

// New creates the Memory of a rank. All ranks create theirs with the same areas.
func New(cfg Config) *Memory {
	m := &Memory{cfg: cfg, n: len(cfg.Areas), known: make([]int64, len(cfg.Areas)), yield: spin.Within, yields: yieldsWithin, yieldTime: spin.Time, sleepFirst: sleepFirst}
	if m.cfg.Processors == 0 {
		m.cfg.Processors = Processors()
	}
	m.crowded = m.n > m.cfg.Processors
	m.countUnit, m.printUnit = headUnit(countAt), headUnit(printAt)
	m.find()
	if !cfg.SameProcess {
		m.yield, m.yields = spin.Across(), yieldsAcross
		m.place = m.newPlace()
	}
	m.neighbors = Neighbors(cfg.Rank, m.n)
	m.stores = ntstore.New(cfg.Stream)
	m.pieceBytes = PieceBytes(len(cfg.Areas[cfg.Rank]))
	if many := ranksMax * m.cfg.Processors; m.n > many {
		m.yields, m.yieldTime = yieldsMany, 0
		m.sleepFirst = min(sleepFirst*time.Duration(m.n)/time.Duration(many), sleepMax)
	}
	return m
}

// headUnit returns the first 8 bytes of a cell with a number of 1 at an offset.
func headUnit(at int) uint64 {
	var head [8]byte
	binary.NativeEndian.PutUint32(head[at:], 1)
	return binary.NativeEndian.Uint64(head[:])
}

// find sets the pointers to the counters.
func (m *Memory) find() {
	m.takens, m.asleeps, m.runs = m.words(takenAt), m.words(asleepAt), m.words(runsAt)
	m.taken, m.asleep = m.takens[m.cfg.Rank], m.asleeps[m.cfg.Rank]
}

// attach attaches an area.
func (m *Memory) attach(rank int, area []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Areas[rank] = area
	m.takens[rank], m.asleeps[rank], m.runs[rank] = word(area, takenAt), word(area, asleepAt), word(area, runsAt)
}

// attachFor attaches the areas that a program needs. It blocks while one of them cannot be attached, for at most
// attachTime: if the process of its rank has ended, the operation fails meanwhile for that reason.
func (m *Memory) attachFor(ctx context.Context, r *Execution) error {
	for _, rank := range r.program.needs {
		var began time.Time
		for m.cfg.Areas[rank] == nil {
			area, err := m.cfg.Attach(rank)
			if err == nil {
				m.attach(rank, area)
				break
			}
			if began.IsZero() {
				began = time.Now()
			}
			if time.Since(began) >= attachTime {
				return &AttachError{rank, err}
			}
			if err := r.poll(ctx); err != nil {
				return err
			}
			time.Sleep(attachTime / 200)
		}
	}
	m.attached = r.program
	return nil
}

// attachTime bounds the attempts to attach an area.
const attachTime = 2 * time.Second

// newPlace creates the Place of this rank. All ranks show their processors to those that have their areas.
func (m *Memory) newPlace() *affinity.Place {
	own := m.runs[m.cfg.Rank]
	return affinity.New(affinity.Config{
		Processors: m.cfg.Processors, Others: m.n - 1, Before: m.cfg.Rank,
		Show: func(cpu int) {
			if shown := uint32(cpu + 1); own.Load() != shown {
				own.Store(shown)
			}
		},
		Where: func(on []int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			others := on[:0]
			for rank, runs := range m.runs {
				switch {
				case rank == m.cfg.Rank:
				case runs == nil:
					others = append(others, -1)
				default:
					others = append(others, int(runs.Load())-1)
				}
			}
		},
	})
}

// Place returns the Place of this rank, or nil if all ranks are in this process.
func (m *Memory) Place() *affinity.Place { return m.place }

// call returns the word with the fingerprint of a call of a rank, given its number.
func (m *Memory) call(rank int, number uint32) *atomic.Uint64 {
	area := m.cfg.Areas[rank]
	return (*atomic.Uint64)(unsafe.Pointer(&area[callsAt+8*(number%callsKept)]))
}

// Processors returns the number of processors that this process may share with others. GOMAXPROCS is the limit of a container, which all
// its processes share, unless it is 1: the Go runtime takes at least 2 from such a limit, so 1 is the choice of the user for each process.
func Processors() int {
	if limit := runtime.GOMAXPROCS(0); limit > 1 {
		return min(runtime.NumCPU(), limit)
	}
	return runtime.NumCPU()
}

// Processors returns the number of processors that the ranks share.
func (m *Memory) Processors() int { return m.cfg.Processors }

// PieceBytes returns the number of bytes of payload that a rank may post in a piece.
func (m *Memory) PieceBytes() int { return m.pieceBytes }

// word returns the counter at an offset of an area.
func word(area []byte, at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&area[at]))
}

// words returns the counters at an offset of all areas; nil without an area.
func (m *Memory) words(at int) []*atomic.Uint32 {
	words := make([]*atomic.Uint32, len(m.cfg.Areas))
	for rank, area := range m.cfg.Areas {
		if area != nil {
			words[rank] = word(area, at)
		}
	}
	return words
}

// cell returns the offset of the cell of a piece. It is the same in every area.
func (m *Memory) cell(piece int64) int { return cellsAt + int(uint64(piece)%Depth)*line }

// allocate allocates room in the ring of every area for the payloads of a piece, apart from
// those of the piece before, which slower ranks may still read. When the ring wraps around,
// these lie in its second half.
func (m *Memory) allocate(room int) error {
	if !m.touched {
		if err := m.prefault(); err != nil {
			return &MemoryError{err}
		}
	}
	if m.ring+room > ringPieces*m.pieceBytes {
		m.ring = 0
	}
	m.body = ringAt + m.ring
	m.ring += (room + line - 1) / line * line
	return nil
}

// prefault reserves memory for the ring and touches it, before any rank reads it: page faults
// one by one would take longer, for this rank and for all readers.
func (m *Memory) prefault() error {
	if m.cfg.Reserve != nil {
		if err := m.cfg.Reserve(); err != nil {
			return err
		}
	}
	ring := m.cfg.Areas[m.cfg.Rank][ringAt:]
	for i := 0; i < len(ring); i += pageBytes {
		ring[i] = 0
	}
	m.touched = true
	return nil
}

// progress returns a number that changes as the collective makes progress.
func (m *Memory) progress() uint64 {
	p := uint64(m.taken.Load())
	for s := range int64(Depth) {
		p += uint64(word(m.cfg.Areas[m.cfg.Rank], m.cell(s)+countAt).Load()) << 32
	}
	return p
}

// Within reports whether all ranks are goroutines of this process.
func (m *Memory) Within() bool { return m.cfg.SameProcess }

// waiting returns the awaited rank, or -1. A rank whose counter has been raised waits for none, although it may not have run since:
// otherwise it could be taken for a part of a deadlock.
func (m *Memory) waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.awaited; a.at != nil && int32(a.at.Load()-a.value) < 0 {
		return a.rank
	}
	return -1
}

// isStuck reports whether this rank waits for a post that another rank will never make: that rank
// has finished all its work up to a mark without the post, as part of another call.
func (m *Memory) isStuck(rank int, mark uint32) bool {
	if !m.hasFinished(rank, mark) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.awaited
	return a.at != nil && a.rank == rank && int32(a.at.Load()-a.value) < 0
}

// hasFinished reports whether a rank has finished all its work up to a mark: the number of pieces
// of all collectives up to a point, which wraps around. It is false for a rank without an area.
func (m *Memory) hasFinished(rank int, mark uint32) bool {
	m.mu.Lock()
	taken := m.takens[rank]
	m.mu.Unlock()
	return taken != nil && int32(taken.Load()-mark) >= 0
}

// has reports whether the area of a rank is attached.
func (m *Memory) has(rank int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.takens[rank] != nil
}

// remaining returns the number of pieces up to a mark that this rank has not finished.
func (m *Memory) remaining(mark uint32) int { return max(0, int(int32(mark-m.taken.Load()))) }

// close releases the areas. It must be called once no collective runs or will run, and not
// concurrently with other methods, which still return the same results afterwards. Only the
// first call has an effect.
func (m *Memory) close() {
	if m.left {
		return
	}
	m.left = true
	m.place.Leave()
	areas := make([][]byte, m.n)
	for i, taken := range m.takens {
		if taken == nil {
			continue
		}
		words := make([]uint64, ringAt/8)
		areas[i] = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), ringAt)
		word(areas[i], takenAt).Store(taken.Load())
	}
	copy(areas[m.cfg.Rank], m.cfg.Areas[m.cfg.Rank])
	m.mu.Lock()
	m.cfg.Areas = areas
	m.find()
	m.mu.Unlock()
	if m.cfg.Release != nil {
		m.cfg.Release()
	}
}

// interrupt wakes the rank if it sleeps, so that it notices a failure. A rank that is just about
// to sleep notices it after at most sleepMax.
func (m *Memory) interrupt() {
	if w := m.sleepsOn.Load(); w != nil {
		m.cfg.Wake(w)
	}
}
