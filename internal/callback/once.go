package callback

import "sync"

// A Once calls a function once. Unlike a [sync.Once] it holds no mutex meanwhile: other callers of Do wait for a
// channel. In a bubble of testing/synctest time passes while they do, so the function may wait for a time.
// Its zero value is ready for use.
type Once struct {
	mu   sync.Mutex
	done chan struct{} // nil before the first call; closed after it
}

// Do calls f if it is the first call of Do. Other calls block until f has returned.
func (o *Once) Do(f func()) {
	o.mu.Lock()
	done := o.done
	if done == nil {
		o.done = make(chan struct{})
	}
	o.mu.Unlock()
	if done != nil {
		<-done
		return
	}
	defer close(o.done)
	f()
}

// OnceValue returns a function that calls f by [Once.Do] and returns its result.
func OnceValue[T any](f func() T) func() T {
	var once Once
	var result T
	return func() T {
		once.Do(func() { result = f() })
		return result
	}
}
