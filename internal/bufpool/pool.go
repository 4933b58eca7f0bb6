// Package bufpool keeps byte buffers for reuse, in tiers by size.
//
// Most callers make one Pool, and for each piece of work call Get and later
// Put:
//
//	b := pool.Get(n)
//	defer pool.Put(b)
//	fill(b.B)
//
// Nothing is allocated until it is asked for, and idle buffers are kept up to
// the number that the tier states; Trim lets them all go. The memory of a
// buffer begins at a multiple of 64 bytes. It is not zeroed: it holds whatever
// its last user left there.
//
// A buffer that is never put back is collected as garbage like anything else.
// Putting one back twice, or into another pool, is a broken invariant and
// panics, except when somebody else has got the buffer in between.
//
// A Pool may be used by several goroutines; a Buffer belongs to the one that
// got it.
package bufpool

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// A Tier is a size of buffers.
type Tier struct {
	Size int // capacity of its buffers in bytes
	Keep int // idle buffers kept for reuse; more are dropped
}

// A Config says which buffers a Pool keeps. The zero value is that of Training.
type Config struct {
	Tiers []Tier // by ascending size; empty means those of Training
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Training suits jobs that exchange large vectors all the time. At rest it
// keeps at most 2.3 GiB, if the job has ever used that much.
func Training() Config {
	return Config{Tiers: []Tier{{64 * kib, 256}, {8 * mib, 32}, {64 * mib, 16}, {256 * mib, 4}}}
}

// Inference suits servers, which exchange less and need memory for other
// things. At rest it keeps at most 400 MiB.
func Inference() Config {
	return Config{Tiers: []Tier{{64 * kib, 256}, {8 * mib, 16}, {64 * mib, 4}, {256 * mib, 0}}}
}

// growthMax is how many times the size of its tier a buffer may have grown
// and still be kept.
const growthMax = 4

// align is what the address of a buffer is a multiple of: a cache line, and
// the width of the widest vector instructions.
const align = 64

// A Buffer is memory from a Pool.
type Buffer struct {
	// B has the length asked for and at least the capacity of its tier. It may
	// be resliced and appended to, but not replaced by the memory of something
	// else, which Put would take for that of a grown buffer.
	B []byte

	mem  []byte // what B was at first, at its full capacity
	tier *tier
	idle bool // in the pool, or dropped by it; guarded by tier.mu
}

// A Pool lends buffers.
type Pool struct {
	tiers    []tier // by ascending size
	oversize tier   // lends what is larger, and keeps none
}

// A tier has its own lock, so that large buffers never wait for small ones.
type tier struct {
	mu   sync.Mutex
	pool *Pool
	Tier
	idle  []*Buffer // the one used last is taken first: its memory is in the cache
	stats TierStats
}

// New returns an empty pool. The sizes of cfg must be positive and ascending,
// and no number to keep negative.
func New(cfg Config) (*Pool, error) {
	if len(cfg.Tiers) == 0 {
		cfg = Training()
	}
	p := &Pool{tiers: make([]tier, len(cfg.Tiers))}
	p.oversize.pool = p
	last := 0
	for i, t := range cfg.Tiers {
		if t.Size <= 0 || t.Keep < 0 {
			return nil, fmt.Errorf("bufpool: tier %d: size %d, keep %d: %w", i, t.Size, t.Keep, errRange)
		}
		if t.Size <= last {
			return nil, fmt.Errorf("bufpool: tier %d: size %d after %d: %w", i, t.Size, last, errOrder)
		}
		last = t.Size
		p.tiers[i].pool, p.tiers[i].Tier = p, t
	}
	return p, nil
}

var (
	errRange = errors.New("a size is positive and a number to keep is not negative")
	errOrder = errors.New("sizes must ascend")
)

// Get returns a buffer of length n, with the capacity of the smallest tier
// that fits, or just n if none does. Its contents are arbitrary.
func (p *Pool) Get(n int) *Buffer {
	if n < 0 {
		panic("bufpool: negative length")
	}
	t, size := p.tierFor(n)
	t.mu.Lock()
	t.stats.Gets++
	if last := len(t.idle) - 1; last >= 0 {
		b := t.idle[last]
		t.idle[last] = nil
		t.idle = t.idle[:last]
		t.stats.Hits++
		t.stats.BytesIdle -= int64(cap(b.mem))
		b.idle = false
		t.mu.Unlock()
		b.B = b.mem[:n]
		return b
	}
	t.mu.Unlock() // allocating may take long
	mem := alignedBytes(size)
	return &Buffer{B: mem[:n], mem: mem, tier: t}
}

// tierFor returns the tier that lends buffers of length n, and their capacity.
func (p *Pool) tierFor(n int) (*tier, int) {
	for i := range p.tiers {
		if t := &p.tiers[i]; n <= t.Size {
			return t, t.Size
		}
	}
	return &p.oversize, n
}

// Put gives b back. It is kept unless its tier has enough idle buffers or it
// has grown beyond four times the size of its tier. Neither b nor its memory
// may be used afterwards.
func (p *Pool) Put(b *Buffer) {
	t := b.tier
	if t.pool != p {
		panic("bufpool: buffer of another pool")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if b.idle {
		panic("bufpool: buffer put back twice")
	}
	b.idle = true
	t.stats.Puts++
	grown := b.B
	b.B = nil // whoever goes on using it finds out
	if cap(grown) > cap(b.mem) && isAligned(grown) {
		b.mem = grown[:cap(grown)]
	}
	if len(t.idle) >= t.Keep || (cap(grown)-1)/growthMax >= t.Size {
		t.stats.Drops++
		b.mem = nil
		return
	}
	t.idle = append(t.idle, b)
	t.stats.BytesIdle += int64(cap(b.mem))
}

// Trim drops all idle buffers and returns how many bytes that were. They go
// back to the system when the garbage collector has found them; to have that
// at once, call runtime/debug.FreeOSMemory.
func (p *Pool) Trim() int64 {
	var freed int64
	for i := range p.tiers {
		t := &p.tiers[i]
		t.mu.Lock()
		freed += t.stats.BytesIdle
		t.stats.Trims += uint64(len(t.idle))
		t.stats.BytesIdle = 0
		for _, b := range t.idle {
			b.mem = nil // even if somebody still holds the Buffer
		}
		t.idle = nil
		t.mu.Unlock()
	}
	return freed
}

// alignedBytes allocates n bytes. The allocator aligns large ones by itself;
// only small ones, if at all, take a second try with room to spare.
func alignedBytes(n int) []byte {
	p := make([]byte, n)
	if isAligned(p) {
		return p
	}
	p = make([]byte, n+align-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) % align)
	return p[skip : skip+n : skip+n]
}

func isAligned(p []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(p)))%align == 0
}
