package recorder

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := NewClock()
		time.Sleep(3 * time.Second)
		if got := c.Recent(); got != 0 {
			t.Errorf("Recent returned %d before Now was called", got)
		}
		if got := c.Now(); got != int64(3*time.Second) {
			t.Errorf("Now returned %d after 3 s", got)
		}
		time.Sleep(time.Second)
		if got := c.Recent(); got != int64(3*time.Second) {
			t.Errorf("Recent returned %d, want 3 s", got)
		}
		if got := c.Time(c.Now()); !got.Equal(start.Add(4 * time.Second)) {
			t.Errorf("Time of Now is %v, 4 s after %v", got, start)
		}
	})
}
