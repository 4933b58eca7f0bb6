package nexar

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar/compress"
)

// TestBufferPool: ranks that share a pool get their buffers from it, and return them.
func TestBufferPool(t *testing.T) {
	const kib = 1 << 10
	pool, err := NewBufferPool(BufferTier{Size: 4 * kib, Keep: 2}, BufferTier{Size: 256 * kib, Keep: 3})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // two worlds share the pool
		comms := localCluster(t, 3, Config{Buffers: pool})
		onAll(t, comms, func(_ int, c *Comm) error {
			return AllReduceCompressed(t.Context(), c, make([]float32, 64*kib/4), Sum, compress.None{})
		})
		for _, c := range comms {
			c.Close()
		}
		if idle := pool.Idle(); idle <= 0 || idle > 2*4*kib+3*256*kib {
			t.Errorf("%d bytes are idle, want more than 0 and at most the bytes that the tiers keep", idle)
		}
	}
	pool.Trim()
	if idle := pool.Idle(); idle != 0 {
		t.Errorf("%d bytes are idle after Trim", idle)
	}
}

func TestBufferPoolErrors(t *testing.T) {
	for _, tiers := range [][]BufferTier{nil, {{Size: 0, Keep: 1}}, {{Size: 10, Keep: -1}}, {{Size: 10}, {Size: 10}}} {
		if _, err := NewBufferPool(tiers...); !errors.Is(err, ErrConfig) {
			t.Errorf("%v: error %v, want ErrConfig", tiers, err)
		}
	}
}
