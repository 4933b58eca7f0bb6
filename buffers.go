package nexar

import (
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/transport"
)

// A BufferPool keeps the buffers of collectives for reuse. Several nodes of a process, and
// worlds made by [Local], can share one: it then keeps as many idle buffers as one node
// would. Programs can use it as well, by [BufferPool.Get] and [BufferPool.Put]. It may be used by several goroutines.
type BufferPool struct{ pool *bufpool.Pool }

// A BufferTier is a size of buffers in a [BufferPool].
type BufferTier struct {
	Size int // capacity of the buffers in bytes
	Keep int // idle buffers that are kept; more are left to the garbage collector
}

// NewBufferPool returns an empty pool for [Config].Buffers. A buffer is as long as the
// smallest tier that fits; longer buffers than those of the last tier are not kept. The
// sizes of the tiers are positive and ascending.
func NewBufferPool(tiers ...BufferTier) (*BufferPool, error) {
	if len(tiers) == 0 {
		return nil, opError("buffer pool", fmt.Errorf("%w: no tiers: give at least one", ErrConfig))
	}
	var cfg bufpool.Config
	for _, t := range tiers {
		cfg.Tiers = append(cfg.Tiers, bufpool.Tier{Size: t.Size, Keep: t.Keep})
	}
	pool, err := bufpool.New(cfg)
	if err != nil {
		return nil, opError("buffer pool", fmt.Errorf("%w: %w", ErrConfig, err))
	}
	return &BufferPool{pool}, nil
}

// A Buffer is memory of a [BufferPool].
type Buffer struct {
	// B has the length that [BufferPool.Get] was called with, and at least the capacity of its tier. It may be
	// resliced and appended to, and must not be set to other memory.
	B  []byte
	of *bufpool.Buffer
}

// Get returns a buffer of n bytes with arbitrary content, from the smallest tier that fits; it allocates one
// if the tier has no idle buffer or if n exceeds the last tier. The memory begins at a multiple of 64 bytes. Get
// panics if n is negative. A buffer that is not put back is left to the garbage collector.
func (p *BufferPool) Get(n int) Buffer {
	b := p.pool.Get(n)
	return Buffer{b.B, b}
}

// Put returns a buffer of [BufferPool.Get] to the pool. Neither the buffer nor its memory may be used
// afterwards. Put panics if b belongs to another pool, or has been put back before and not lent again.
func (p *BufferPool) Put(b Buffer) {
	if b.of == nil {
		panic("nexar: BufferPool.Put of a Buffer that Get has not returned")
	}
	b.of.B = b.B
	p.pool.Put(b.of)
}

// Idle returns the number of bytes in idle buffers.
func (p *BufferPool) Idle() (bytes int64) {
	for _, t := range p.pool.Stats().Tiers {
		bytes += t.BytesIdle
	}
	return bytes
}

// Trim drops all idle buffers.
func (p *BufferPool) Trim() { p.pool.Trim() }

// of returns the pool of p, or nil if p is nil.
func (p *BufferPool) of() *bufpool.Pool {
	if p == nil {
		return nil
	}
	return p.pool
}

// AllocRegistered allocates a vector of n elements outside of the Go heap. The elements are zero. Transports that
// register memory, such as RDMA, keep it registered and send payloads from it without copies; other transports treat it
// like any vector. n must be positive.
//
// The memory is valid until free, which may be called once, when no operation uses the vector. The garbage collector
// does not free it.
func AllocRegistered[T Number](n int) (vector []T, free func(), err error) {
	size := int(unsafe.Sizeof(*new(T)))
	if n < 1 || n > int(^uint(0)>>1)/size {
		return nil, nil, fmt.Errorf("AllocRegistered of %d elements of %d bytes: the length must be positive and the memory addressable", n, size)
	}
	m, err := transport.Map(n * size)
	if err != nil {
		return nil, nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&m.Bytes()[0])), n), m.Free, nil
}
