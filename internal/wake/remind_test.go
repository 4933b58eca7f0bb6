package wake

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestRemind: the pauses double up to a minute, and end with Stop.
func TestRemind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []time.Duration
		r := Remind(10*time.Second, func(waited time.Duration) { got = append(got, waited/time.Second) })
		time.Sleep(4 * time.Minute)
		r.Stop()
		time.Sleep(time.Hour)
		if want := []time.Duration{10, 30, 70, 130, 190}; !slices.Equal(got, want) {
			t.Errorf("called after %d seconds, want %d", got, want)
		}
	})
}
