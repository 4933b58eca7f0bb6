package engine

import "testing"

// Over links that do not know the processor of the peer, a rank is not assigned one of its own.
func TestSpreadWithoutProcessors(t *testing.T) {
	w := newWorld(t, 3, overMem, Config{})
	for _, c := range w.comms {
		if c.Spread([]int{0, 1, 2}, 2); c.poller.Place != nil {
			t.Error("a rank of one process is assigned a processor of its own")
		}
	}
}
