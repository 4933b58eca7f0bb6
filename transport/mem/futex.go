package mem

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// futexes block goroutines until a word of memory changes, as futex(2) does. The zero
// value is ready for use.
type futexes struct {
	mu      sync.Mutex
	waiters map[*atomic.Uint32][]*futexWaiter
	free    []*futexWaiter
}

type futexWaiter struct {
	woken chan struct{} // gets one value from the wake that removed the waiter
	timer *time.Timer
}

// wait blocks while word has the value old, until wake or until d has passed.
func (f *futexes) wait(word *atomic.Uint32, old uint32, d time.Duration) {
	w := f.enqueue(word, old)
	if w == nil {
		return
	}
	w.timer.Reset(d)
	select {
	case <-w.woken:
	case <-w.timer.C:
		if !f.remove(word, w) {
			<-w.woken
		}
	}
	w.timer.Stop()
	f.mu.Lock()
	f.free = append(f.free, w)
	f.mu.Unlock()
}

// enqueue returns a waiter for word, or nil if its value is not old.
func (f *futexes) enqueue(word *atomic.Uint32, old uint32) *futexWaiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if word.Load() != old {
		return nil
	}
	var w *futexWaiter
	if n := len(f.free); n > 0 {
		w, f.free = f.free[n-1], f.free[:n-1]
	} else {
		w = &futexWaiter{woken: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	}
	if f.waiters == nil {
		f.waiters = make(map[*atomic.Uint32][]*futexWaiter)
	}
	f.waiters[word] = append(f.waiters[word], w)
	return w
}

// remove removes a waiter. It returns false if a wake has removed it.
func (f *futexes) remove(word *atomic.Uint32, w *futexWaiter) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.waiters[word], w)
	if i < 0 {
		return false
	}
	f.waiters[word] = slices.Delete(f.waiters[word], i, i+1)
	return true
}

// wake wakes all waiters of word.
func (f *futexes) wake(word *atomic.Uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	waiters := f.waiters[word]
	if len(waiters) == 0 {
		return
	}
	for _, w := range waiters {
		w.woken <- struct{}{}
	}
	f.waiters[word] = waiters[:0]
}
