package shmexec

import (
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/internal/ntstore"
	"github.com/nexar-go/nexar/internal/plan"
)

// TestNonTemporalStores runs algorithms with non-temporal stores.
func TestNonTemporalStores(t *testing.T) {
	const n = 4
	var past atomic.Int64
	memories, _ := newMemories(n, 256<<10)
	for _, b := range memories {
		b.stores = ntstore.Always(func(dst, src []byte) { past.Add(int64(copy(dst, src))) })
	}
	fingerprint := uint32(0)
	for _, c := range plan.Collectives() {
		for _, a := range single(c, n) {
			for _, most := range []int{1, 100, 1600} {
				fingerprint++
				trial{c, a, n, 0, 3, most, 0}.run(t, memories, fingerprint)
			}
		}
	}
	if past.Load() == 0 {
		t.Error("no payload was written with non-temporal stores")
	}
}
