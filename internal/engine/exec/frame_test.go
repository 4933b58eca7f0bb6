//race:none it starts no goroutine

package exec

import (
	"runtime"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// TestHeldFramesKeepTheirPayloads: frames that are held keep no memory of longer payloads that they had before. Long payloads are
// held and released again and again, and each time short ones and frames without a payload get their frames.
func TestHeldFramesKeepTheirPayloads(t *testing.T) {
	const rounds, frames = 200, 16
	payload := make([]byte, wire.PayloadMax)
	for _, length := range []int{0, 1} {
		var pool FramePool
		var held []*Frame
		get := func(n int) *Frame {
			f := pool.GetLocked(nil, Step, new(wire.Step), payload[:n])
			f.HoldLocked()
			return f
		}
		before := heap()
		for range rounds {
			var long []*Frame
			for range frames {
				long = append(long, get(len(payload)))
			}
			for _, f := range long {
				f.ReleaseLocked()
			}
			for range frames {
				held = append(held, get(length))
			}
		}
		if grown := heap() - before; grown > freeFramesMax+rounds*frames*(4*frameBytes) {
			t.Errorf("the heap has grown by %d bytes for %d frames with %d bytes", grown, len(held), length)
		}
		runtime.KeepAlive(held)
	}
}

// heap returns the size of the heap.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
