//go:build !race

package nexar_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestVecAllocatesNoCopy: 64 MiB in 16 long regions are sent and received with few allocations,
// and thus without a copy. A pipe copies unacknowledged bytes while TCP retransmits, which also
// happens on a busy machine, so one of five transfers must pass. The simulated network stores
// packets in flight and the race detector allocates, so both are excluded.
func TestVecAllocatesNoCopy(t *testing.T) {
	const parts, part = 16, 4 << 20
	for _, m := range []worldtest.Medium{worldtest.Mem(), worldtest.QUIC(), worldtest.TLS(), worldtest.TCP(), worldtest.SHM()} {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			comms := m.Cluster(t, 2, nexar.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 3*worldtest.Patience)
			defer cancel()
			var regions [2][][]byte
			for rank := range regions {
				for range parts {
					regions[rank] = append(regions[rank], make([]byte, part))
				}
			}
			once := func() {
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if rank == 0 {
						return nexar.SendVec(ctx, c, regions[0], 1, 0)
					}
					_, err := nexar.RecvVec(ctx, c, regions[1], 0, 0)
					return err
				})
			}
			once()
			for range 5 {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				once()
				runtime.ReadMemStats(&after)
				bytes := after.TotalAlloc - before.TotalAlloc
				t.Logf("%d bytes allocated in %d pieces", bytes, after.Mallocs-before.Mallocs)
				if bytes <= parts*part/4 {
					return
				}
			}
			t.Errorf("each of five transfers of %d bytes allocated more than a quarter of that", parts*part)
		})
	}
}
