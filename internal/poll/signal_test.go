package poll

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSignal: a Signal wakes the goroutine that sleeps, is known at once to one that looks or comes later, and can be used again. A
// context that has ended wakes the goroutine, which may sleep again.
func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Signal
		for range 3 {
			if s.Has() {
				t.Fatal("Has() before Give")
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if s.Await(ctx) || s.Has() {
				t.Error("Await returns true before Give")
			}
			cancel()
			go func() {
				time.Sleep(time.Second)
				s.Give()
			}()
			for range 2 {
				if !s.Await(t.Context()) || !s.Has() {
					t.Error("Await returns false after Give")
				}
			}
			s.Reset()
		}
	})
}

// TestSignalRaces: Await returns for each Give, however Give and the end of the context meet, and knows which of them came first.
func TestSignalRaces(t *testing.T) {
	var s Signal
	for range 10_000 {
		ctx, cancel := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(cancel)
		others.Go(s.Give)
		if !s.Await(ctx) && !s.Await(t.Context()) {
			t.Fatal("Await returns false although its context goes on")
		}
		if !s.Has() {
			t.Fatal("Await returns true before Give")
		}
		others.Wait()
		s.Reset()
	}
}
