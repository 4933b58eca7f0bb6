// Package bufpool keeps byte buffers for reuse, in tiers by size.
//
// Most callers make one [Pool], and call Get and later Put for each piece of work:
//
//	b := pool.Get(n)
//	defer pool.Put(b)
//	fill(b.B)
//
// Get allocates if the tier has no idle buffer. Each tier keeps up to Tier.Keep idle buffers;
// Trim drops them all. The memory of a buffer begins at a multiple of 64 bytes and is not
// zeroed.
//
// A buffer that is never put back is garbage-collected. Putting a buffer back twice, or into
// another pool, panics, unless another Get has returned the buffer in between.
//
// A Pool may be used concurrently; a Buffer belongs to the caller of Get.
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

// A Config configures a Pool. The zero value is the configuration of [Training].
type Config struct {
	Tiers []Tier // by ascending size; empty means the tiers of Training
}

const (
	kib = 1 << 10
	mib = 1 << 20
)

// Training suits jobs that exchange large vectors all the time. An idle pool keeps at most
// 2.3 GiB.
func Training() Config {
	return Config{Tiers: []Tier{{64 * kib, 256}, {8 * mib, 32}, {64 * mib, 16}, {256 * mib, 4}}}
}

// Inference suits servers that exchange less and need memory for other purposes. An idle pool
// keeps at most 400 MiB.
func Inference() Config {
	return Config{Tiers: []Tier{{64 * kib, 256}, {8 * mib, 16}, {64 * mib, 4}, {256 * mib, 0}}}
}

// growthMax is the largest capacity of a buffer that Put keeps, in sizes of its tier.
const growthMax = 4

// align is the alignment of buffers: a cache line, and the width of the widest vector
// instructions.
const align = 64

// A Buffer is memory from a Pool.
type Buffer struct {
	// B has the requested length and at least the capacity of its tier. It may be
	// resliced and appended to. It must not be set to other memory, which Put would
	// take for a grown buffer.
	B []byte

	mem  []byte // the initial B, at its full capacity
	tier *tier
	idle bool // in the pool, or dropped by it; guarded by tier.mu
}

// A Pool lends buffers.
type Pool struct {
	tiers    []tier // by ascending size
	oversize tier   // for larger buffers; keeps none
}

// A tier has a lock of its own, so that large buffers never wait for small ones.
type tier struct {
	mu   sync.Mutex
	pool *Pool
	Tier
	idle  []*Buffer // a stack: the memory of the last buffer is in the cache
	stats TierStats
}

// New returns an empty pool. The sizes in cfg must be positive and ascending, and Keep must
// not be negative.
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
	errRange = errors.New("the size must be positive and keep must not be negative")
	errOrder = errors.New("sizes must ascend")
)

// Get returns a buffer of length n with arbitrary content. Its capacity is the size of the
// smallest tier that fits, or n if none does.
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
	t.mu.Unlock() // The allocation may take long.
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

// Put returns b to the pool, which drops it if its tier has Keep idle buffers or if it has grown
// beyond growthMax times the size of its tier. Neither b nor its memory may be used
// afterwards.
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
	b.B = nil // A later use fails.
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

// Trim drops all idle buffers and returns their size in bytes. The garbage collector returns
// the memory to the system later; runtime/debug.FreeOSMemory does so immediately.
func (p *Pool) Trim() int64 {
	var freed int64
	for i := range p.tiers {
		t := &p.tiers[i]
		t.mu.Lock()
		freed += t.stats.BytesIdle
		t.stats.Trims += uint64(len(t.idle))
		t.stats.BytesIdle = 0
		for _, b := range t.idle {
			b.mem = nil // even if a caller still holds the Buffer
		}
		t.idle = nil
		t.mu.Unlock()
	}
	return freed
}

// alignedBytes allocates n aligned bytes. The allocator of Go aligns large slices; a small one may
// need a second, larger allocation.
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
