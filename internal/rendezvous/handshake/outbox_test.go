package handshake

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTicksFallTogether: ticks are at whole seconds, whenever a connection begins, and about an interval apart.
func TestTicksFallTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, interval := range []time.Duration{time.Second, 1500 * time.Millisecond, 5 * time.Second, time.Minute} {
			time.Sleep(123_456 * time.Microsecond)
			for i := range 5 {
				d := untilTick(interval)
				if least := max(interval-Tick, Tick/4); d < least || d > interval+Tick {
					t.Errorf("interval %v: tick %d after %v", interval, i, d)
				}
				time.Sleep(d)
				if now := time.Now(); !now.Equal(now.Truncate(Tick)) {
					t.Errorf("interval %v: tick %d at %v", interval, i, now)
				}
			}
			// A timer that fires early does not fire again for the same second.
			time.Sleep(untilTick(interval) - time.Millisecond)
			if d := untilTick(interval); d < Tick/4 {
				t.Errorf("interval %v: the next tick after %v", interval, d)
			}
		}
		if d := untilTick(20 * time.Millisecond); d != 20*time.Millisecond {
			t.Errorf("a short interval lasts %v", d)
		}
	})
}
