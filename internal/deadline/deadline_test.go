package deadline

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSet: Wake is called once when the last deadline passes, and not for one that was removed or replaced, even if its timer
// has fired before.
func TestSet(t *testing.T) {
	type set struct{ after, in int } // after the one before; in 0 removes the deadline
	for name, test := range map[string]struct {
		sets   []set
		wakes  []time.Duration
		passed bool
	}{
		"none":     {},
		"future":   {[]set{{0, 5}}, []time.Duration{5}, true},
		"past":     {[]set{{0, -1}}, []time.Duration{0}, true},
		"now":      {[]set{{3, 5}, {2, -1}}, []time.Duration{5}, true},
		"removed":  {[]set{{0, 5}, {4, 0}}, nil, false},
		"later":    {[]set{{0, 5}, {4, 5}}, []time.Duration{9}, true},
		"earlier":  {[]set{{0, 5}, {1, 2}}, []time.Duration{3}, true},
		"again":    {[]set{{0, 5}, {7, 5}}, []time.Duration{5, 12}, true},
		"undone":   {[]set{{0, 5}, {7, 0}}, []time.Duration{5}, false},
		"set past": {[]set{{0, 5}, {7, -3}}, []time.Duration{5, 7}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				var wakes []time.Duration
				d := Deadline{L: &mu, Wake: func() {
					if mu.TryLock() {
						t.Error("Wake is called without the lock")
					}
					wakes = append(wakes, time.Since(start)/time.Second)
				}}
				for _, s := range test.sets {
					time.Sleep(time.Duration(s.after) * time.Second)
					mu.Lock()
					at := time.Time{}
					if s.in != 0 {
						at = time.Now().Add(time.Duration(s.in) * time.Second).Round(0) // without a monotonic reading
					}
					d.Set(at)
					mu.Unlock()
				}
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if len(wakes) != len(test.wakes) || d.Passed() != test.passed {
					t.Fatalf("woken at %v, passed %v, want %v, %v", wakes, d.Passed(), test.wakes, test.passed)
				}
				for i, w := range test.wakes {
					if wakes[i] != w {
						t.Errorf("woken at %v s, want %v", wakes, test.wakes)
					}
				}
			})
		})
	}
}

// TestLateTimer: a timer that has fired, and waits for the lock, has no effect on a deadline that is removed or moved meanwhile.
func TestLateTimer(t *testing.T) {
	for name, in := range map[string]time.Duration{"removed": 0, "moved": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				woken := 0
				d := Deadline{L: &mu, Wake: func() { woken++ }}
				mu.Lock()
				d.Set(time.Now().Add(time.Second))
				d.timer.Stop()
				at := time.Time{}
				if in != 0 {
					at = time.Now().Add(in)
				}
				d.Set(at)
				mu.Unlock()
				d.fire() // as the first timer would
				mu.Lock()
				if woken != 0 || d.Passed() {
					t.Errorf("woken %d times, passed %v", woken, d.Passed())
				}
				mu.Unlock()
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				if want := in != 0; d.Passed() != want || (woken == 1) != want {
					t.Errorf("after a minute: woken %d times, passed %v, want %v", woken, d.Passed(), want)
				}
			})
		})
	}
}
