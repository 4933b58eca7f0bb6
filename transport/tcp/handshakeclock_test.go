package tcp

import (
	"testing"
	"time"
)

// TestHandshakeDelays: a conn dials the second socket of a pipe later while handshakes take long, and dials one in any case.
func TestHandshakeDelays(t *testing.T) {
	const timeout = 10 * time.Second
	now := time.Now()
	for _, c := range []struct {
		name  string
		took  []time.Duration
		ago   time.Duration
		first time.Duration
		count int
	}{
		{"no handshake", nil, 0, time.Second, 3},
		{"short ones", []time.Duration{time.Millisecond, 2 * time.Millisecond}, 0, time.Second, 3},
		{"some with lost packets", []time.Duration{time.Millisecond, time.Millisecond, 3 * time.Second, 3 * time.Second, time.Second}, 0, time.Second, 3},
		{"busy hosts", []time.Duration{300 * time.Millisecond, 350 * time.Millisecond, 400 * time.Millisecond}, 0, 2400 * time.Millisecond, 2},
		{"very busy hosts", []time.Duration{5 * time.Second}, 0, 4 * time.Second, 1},
		{"long ago", []time.Duration{5 * time.Second}, handshakesLast, time.Second, 3},
	} {
		var k handshakeClock
		for _, d := range c.took {
			k.note(now.Add(-d-c.ago), now.Add(-c.ago))
		}
		if got := k.delays(now, timeout); len(got) != c.count || got[0] != c.first {
			t.Errorf("%s: delays %v, want %d, the first of %v", c.name, got, c.count, c.first)
		}
	}
}
