//go:build !race

package nexar

import (
	"context"
	"runtime"
	"testing"
)

// Long regions are not copied on the way: 64 MiB in 16 of them are sent, and
// received, with a fraction of that in all allocations together. The simulated
// network keeps what is on its way, and the race detector allocates by itself.
func TestVecAllocatesNoCopy(t *testing.T) {
	const parts, part = 16, 4 << 20
	for _, m := range []medium{overMem, overQUIC, overTCP, overPlainTCP, overShared} {
		t.Run(m.name, func(t *testing.T) {
			m.needs(t)
			comms := m.cluster(t, 2, Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			var regions [2][][]byte
			for rank := range regions {
				for range parts {
					regions[rank] = append(regions[rank], make([]byte, part))
				}
			}
			once := func() {
				onAll(t, comms, func(rank int, c *Comm) error {
					if rank == 0 {
						return SendVec(ctx, c, regions[0], 1, 0)
					}
					_, err := RecvVec(ctx, c, regions[1], 0, 0)
					return err
				})
			}
			once()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			once()
			runtime.ReadMemStats(&after)
			bytes := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes allocated in %d pieces", bytes, after.Mallocs-before.Mallocs)
			if bytes > parts*part/4 {
				t.Errorf("to send %d bytes, %d bytes of memory were allocated", parts*part, bytes)
			}
		})
	}
}
