package engine

import (
	"math/rand/v2"
	"testing"
)

// TestCallsUnderWay compares the ring with a map while operations begin in order and end in
// any order.
func TestCallsUnderWay(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var c calls
		model := make(map[uint64]*Op)
		seq := 1 + rng.Uint64N(100)
		for range 300 {
			if rng.IntN(3) > 0 || len(model) == 0 {
				seq++
				op := new(Op)
				op.call = c.put(op, seq, 8)
				model[seq] = op
			} else {
				for s, op := range model { // any of them
					if c.end(op.call); op.call.Seq != s || op.call.op != nil {
						t.Fatalf("operation %d has the call %d, of operation %v", s, op.call.Seq, op.call.op)
					}
					delete(model, s)
					break
				}
			}
			seen := 0
			c.each(func(op *Op) {
				seen++
				if model[op.call.Seq] != op {
					t.Fatalf("operation %d is under way", op.call.Seq)
				}
			})
			if seen != len(model) || c.live != len(model) {
				t.Fatalf("each calls %d operations and live is %d, want %d", seen, c.live, len(model))
			}
			for s := seq; s > 0 && s+20 > seq; s-- {
				got := c.get(s)
				if want := model[s]; want != nil && (got == nil || got.op != want) || want == nil && got != nil && got.op != nil {
					t.Fatalf("operation %d: got %v, want %v", s, got, want)
				}
			}
		}
	}
}

// The ring remembers as many ended collectives as it is told to keep, and no older ones.
func TestCallsEnded(t *testing.T) {
	for _, keep := range []int{callsKept, callsTraced} {
		var c calls
		if got := c.get(1); got != nil {
			t.Errorf("an empty ring has %v", got)
		}
		for seq := uint64(1); seq < uint64(3*keep); seq++ {
			op := new(Op)
			op.call = c.put(op, seq, keep)
			op.call.Count = 2 * seq
			c.end(op.call)
			for back := range min(seq, uint64(keep+10)) {
				got := c.get(seq - back)
				if back >= uint64(keep) {
					if got != nil {
						t.Fatalf("after %d collectives, number %d is %v, want nil", seq, seq-back, got)
					}
				} else if got == nil || got.Seq != seq-back || got.Count != 2*(seq-back) {
					t.Fatalf("after %d collectives, number %d is %v", seq, seq-back, got)
				}
			}
		}
		if len(c.ring) != keep {
			t.Errorf("a ring of %d entries, want %d", len(c.ring), keep)
		}
	}
}
