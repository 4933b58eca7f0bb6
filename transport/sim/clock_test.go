package sim

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		c := clock{mu: &mu}
		var got []int
		note := func(i int) func() { return func() { got = append(got, i) } }
		now := time.Now()

		mu.Lock()
		c.at(now.Add(3*time.Second), note(4))
		second := c.at(now.Add(2*time.Second), note(0))
		c.at(now.Add(time.Second), func() {
			note(1)()
			c.cancel(second)
			c.at(now, note(2)) // due at once
		})
		c.at(now.Add(2*time.Second), note(3))
		for i := range 5 {
			c.at(now.Add(3*time.Second), note(5+i))
		}
		mu.Unlock()

		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}; !slices.Equal(got, want) {
			t.Errorf("order of calls: %v, want %v", got, want)
		}

		mu.Lock()
		c.at(time.Now().Add(time.Second), note(10))
		c.stop()
		c.cancel(c.at(time.Now(), note(11)))
		mu.Unlock()
		time.Sleep(time.Hour)
		if len(got) != 9 {
			t.Errorf("calls after stop: %v", got[9:])
		}
	})
}
