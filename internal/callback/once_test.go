package callback

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestOnce: concurrent calls wait for the first one, in fake time, and all return its result.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := OnceValue(func() int {
			calls++
			time.Sleep(time.Minute)
			return calls
		})
		began := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if got, took := f(), time.Since(began); got != 1 || took != time.Minute {
					t.Errorf("got %d after %v, want 1 after a minute", got, took)
				}
			})
		}
		all.Wait()
		if got := f(); got != 1 || calls != 1 {
			t.Errorf("got %d after %d calls of the function", got, calls)
		}
	})
}

// TestOnceAfterPanic: a function that has panicked is not called again.
func TestOnceAfterPanic(t *testing.T) {
	var once Once
	func() {
		defer func() { _ = recover() }()
		once.Do(func() { panic("first") })
	}()
	once.Do(func() { t.Error("the function is called again") })
}
