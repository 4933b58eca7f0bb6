package mem

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestRing compares a ring with a plain slice over random calls.
func TestRing(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var r ring
		var model []byte
		next := byte(0)
		for range 2000 {
			if rng.IntN(2) == 0 {
				p := make([]byte, rng.IntN(1<<rng.IntN(18)))
				for i := range p {
					p[i] = next + byte(i)
				}
				fits := len(model)+len(p) <= maxRing
				if got := r.put(p); got != fits {
					t.Fatalf("seed %d: put of %d bytes after %d: got %v, want %v", seed, len(p), len(model), got, fits)
				}
				if fits {
					model = append(model, p...)
					next += byte(len(p))
				}
				continue
			}
			limit := rng.IntN(1 << rng.IntN(18))
			got := r.peek(limit)
			if len(got) > limit || !bytes.HasPrefix(model, got) || limit > 0 && len(model) > 0 && len(got) == 0 {
				t.Fatalf("seed %d: peek(%d) of %d bytes returns %d, or wrong ones", seed, limit, len(model), len(got))
			}
			r.drop(len(got))
			model = model[len(got):]
		}
	}
}

// TestRingKeepsViews: a view stays intact while the ring fills and grows.
func TestRingKeepsViews(t *testing.T) {
	var r ring
	r.put(bytes.Repeat([]byte{1}, 3000))
	r.drop(2000)
	view := r.peek(1000)
	for r.put(bytes.Repeat([]byte{2}, 1000)) {
	}
	if !bytes.Equal(view, bytes.Repeat([]byte{1}, 1000)) {
		t.Error("put changes a view")
	}
	if r.n != maxRing/1000*1000 || len(r.buf) != maxRing {
		t.Errorf("the full ring has %d bytes of %d", r.n, len(r.buf))
	}
	r.drop(1000)
	if got := r.peek(1)[0]; got != 2 {
		t.Errorf("the byte after the view is %d, want 2", got)
	}
}

// TestRingStartsSmall: a ring allocates memory as it needs it.
func TestRingStartsSmall(t *testing.T) {
	var r ring
	if got := r.peek(10); len(got) != 0 {
		t.Errorf("an empty ring returns %d bytes", len(got))
	}
	for _, step := range []struct{ put, capacity int }{
		{1, minRing},
		{minRing - 1, minRing},
		{1, 2 * minRing},
		{maxRing / 2, maxRing},
	} {
		if !r.put(make([]byte, step.put)) || len(r.buf) != step.capacity {
			t.Errorf("after put of %d bytes: capacity %d, want %d", step.put, len(r.buf), step.capacity)
		}
	}
}
