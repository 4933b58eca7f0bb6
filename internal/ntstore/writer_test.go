package ntstore

import (
	"testing"
	"time"
)

// TestWriter: a Writer uses non-temporal stores after several slow copies in a row, for longer each
// time, and tries ordinary stores in between.
func TestWriter(t *testing.T) {
	const slow, fast = 64 * slowKiB * 2, 64 * slowKiB / 2
	streamed := 0
	w := Writer{stream: func(dst, src []byte) { streamed += copy(dst, src) }}
	learn := func(took ...time.Duration) {
		for _, d := range took {
			w.learn(64<<10, d)
		}
	}
	learn(slow, slow, fast, slow, slow)
	if w.turns > 0 {
		t.Error("uses non-temporal stores although a copy was fast")
	}
	dst, src := make([]byte, longBytes), make([]byte, longBytes)
	if w.Write(dst, src); streamed > 0 {
		t.Error("uses non-temporal stores without a slow copy")
	}
	for want := turnsFirst; want < 2*turnsMax; want *= 2 {
		w.slow = 0
		learn(slow, slow, slow)
		if want := min(want, turnsMax); w.turns != want {
			t.Fatalf("%d turns with non-temporal stores, want %d", w.turns, want)
		}
		for w.turns > 0 {
			w.Write(dst[:64], src[:64]) // too short
			w.Write(dst, src)
			w.Turn()
		}
		if streamed != min(want, turnsMax)*longBytes {
			t.Errorf("%d bytes copied with non-temporal stores in %d turns", streamed, want)
		}
		streamed = 0
	}
	learn(fast)
	learn(slow, slow, slow)
	if w.turns != turnsFirst {
		t.Errorf("%d turns with non-temporal stores after a fast one, want %d", w.turns, turnsFirst)
	}
	w = Writer{}
	learn(slow, slow, slow)
	if w.turns > 0 {
		t.Error("uses non-temporal stores, which are not available")
	}
}
