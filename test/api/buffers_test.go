package api

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestBufferPool: ranks that share a pool get their buffers from it, and return them.
func TestBufferPool(t *testing.T) {
	const kib = 1 << 10
	pool, err := nexar.NewBufferPool(nexar.BufferTier{Size: 4 * kib, Keep: 2}, nexar.BufferTier{Size: 256 * kib, Keep: 3})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // two worlds share the pool
		comms := worldtest.Local(t, 3, nexar.Config{Buffers: pool})
		worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error {
			return nexar.AllReduceCompressed(t.Context(), c, make([]float32, 64*kib/4), nexar.Sum, compress.None{})
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

// TestBufferPoolGet: a buffer that was put back is lent again, if it is of the same tier.
func TestBufferPoolGet(t *testing.T) {
	pool, err := nexar.NewBufferPool(nexar.BufferTier{Size: 1 << 10, Keep: 1}, nexar.BufferTier{Size: 1 << 16, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := pool.Get(100)
	if len(b.B) != 100 || cap(b.B) != 1<<10 {
		t.Errorf("a buffer of 100 bytes has %d of %d, want 100 of 1024", len(b.B), cap(b.B))
	}
	first := &b.B[0]
	pool.Put(b)
	if idle := pool.Idle(); idle != 1<<10 {
		t.Errorf("%d bytes are idle, want 1024", idle)
	}
	large, again, longest := pool.Get(2000), pool.Get(1000), pool.Get(1<<17)
	if &again.B[0] != first || cap(large.B) != 1<<16 || len(longest.B) != 1<<17 {
		t.Errorf("lent again: %t; capacity of a buffer of 2000 bytes: %d; length beyond the tiers: %d", &again.B[0] == first, cap(large.B), len(longest.B))
	}
	if allocs := testing.AllocsPerRun(100, func() { pool.Put(again); again = pool.Get(1000) }); allocs != 0 {
		t.Errorf("Put and Get allocate %v times", allocs)
	}
	pool.Put(again)
	for name, bad := range map[string]nexar.Buffer{"put twice": again, "zero": {}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Put did not panic", name)
				}
			}()
			pool.Put(bad)
		}()
	}
}

func TestBufferPoolErrors(t *testing.T) {
	for _, tiers := range [][]nexar.BufferTier{nil, {{Size: 0, Keep: 1}}, {{Size: 10, Keep: -1}}, {{Size: 10}, {Size: 10}}} {
		if _, err := nexar.NewBufferPool(tiers...); !errors.Is(err, nexar.ErrConfig) {
			t.Errorf("%v: error %v, want ErrConfig", tiers, err)
		}
	}
}
