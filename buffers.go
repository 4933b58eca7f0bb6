package nexar

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/bufpool"
)

// A BufferPool keeps the buffers of collectives for reuse. Several nodes of a process, and
// worlds made by [Local], can share one: it then keeps as many idle buffers as one node
// would. It may be used by several goroutines.
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
