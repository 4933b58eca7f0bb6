package engine

import (
	"math/rand/v2"
	"testing"
)

// TestOpTable compares the table with a map while operations come in order and
// go in any.
func TestOpTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		var table opTable
		model := make(map[uint64]*Op)
		seq := rng.Uint64N(100)
		for range 300 {
			if rng.IntN(3) > 0 || len(model) == 0 {
				seq++
				op := new(Op)
				op.call.Seq = seq
				table.put(op)
				model[seq] = op
			} else {
				for s, op := range model { // Any of them will do.
					table.remove(op)
					delete(model, s)
					break
				}
			}
			seen := 0
			table.each(func(op *Op) {
				seen++
				if model[op.call.Seq] != op {
					t.Fatalf("operation %d is in the table", op.call.Seq)
				}
			})
			if seen != len(model) || table.live != len(model) {
				t.Fatalf("the table has %d operations and says %d, want %d", seen, table.live, len(model))
			}
			for s := seq; s > 0 && s+20 > seq; s-- {
				if table.get(s) != model[s] {
					t.Fatalf("operation %d: got %v, want %v", s, table.get(s), model[s])
				}
			}
		}
	}
}
