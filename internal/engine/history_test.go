package engine

import (
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// A history has the last calls, whatever their number is, and no others.
func TestHistory(t *testing.T) {
	for _, most := range []int{historyLength, historyMax} {
		var h history
		if got := h.get(1); got.Seq != 0 {
			t.Errorf("an empty history has %v", got)
		}
		for seq := uint64(1); seq < uint64(3*most); seq++ {
			h.put(seq, most).call = wire.Call{Seq: seq, Count: 2 * seq}
			for back := range uint64(most + 10) {
				if back >= seq {
					break
				}
				got, want := h.get(seq-back), wire.Call{Seq: seq - back, Count: 2 * (seq - back)}
				if back >= uint64(most) {
					want = wire.Call{}
				}
				if got != want {
					t.Fatalf("of %d calls, number %d is %v, want %v", seq, seq-back, got, want)
				}
			}
		}
		if len(h.ring) != most {
			t.Errorf("a ring of %d, want %d", len(h.ring), most)
		}
	}
}
