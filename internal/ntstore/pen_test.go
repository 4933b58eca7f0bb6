package ntstore

import (
	"testing"
	"time"
)

// TestPen: a pen goes past the caches when it was slow several times in a row, for
// longer each time that it still is, and tries the ordinary way in between.
func TestPen(t *testing.T) {
	const slow, fast = 64 * slowKiB * 2, 64 * slowKiB / 2
	past := 0
	p := Pen{past: func(dst, src []byte) { past += copy(dst, src) }}
	learn := func(took ...time.Duration) {
		for _, d := range took {
			p.learn(64<<10, d)
		}
	}
	learn(slow, slow, fast, slow, slow)
	if p.turns > 0 {
		t.Error("goes past the caches, though a write between was fast")
	}
	dst, src := make([]byte, longBytes), make([]byte, longBytes)
	if p.Write(dst, src); past > 0 {
		t.Error("goes past the caches without a reason")
	}
	for want := turnsFirst; want < 2*turnsMost; want *= 2 {
		p.slow = 0
		learn(slow, slow, slow)
		if want := min(want, turnsMost); p.turns != want {
			t.Fatalf("%d turns go past the caches, want %d", p.turns, want)
		}
		for p.turns > 0 {
			p.Write(dst[:64], src[:64]) // which is too short
			p.Write(dst, src)
			p.Turn()
		}
		if past != min(want, turnsMost)*longBytes {
			t.Errorf("%d bytes went past the caches in %d turns", past, want)
		}
		past = 0
	}
	learn(fast)
	learn(slow, slow, slow)
	if p.turns != turnsFirst {
		t.Errorf("%d turns go past the caches after one that was fast, want %d", p.turns, turnsFirst)
	}
	p = Pen{}
	learn(slow, slow, slow)
	if p.turns > 0 {
		t.Error("goes past the caches, which it cannot")
	}
}
