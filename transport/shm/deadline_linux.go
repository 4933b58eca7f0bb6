package shm

import (
	"sync"
	"time"
)

// A deadline halts one end of a pipe at a time that may change.
type deadline struct {
	mu    sync.Mutex
	end   *end
	at    time.Time // zero if there is none, or if it has passed
	timer *time.Timer
}

// set replaces the deadline by t. The zero time takes it away.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
	if t.IsZero() {
		d.end.resume(deadlinePassed)
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.end.stop(deadlinePassed)
		return
	}
	d.end.resume(deadlinePassed)
	// Now has a monotonic reading, which t may lack.
	d.at = time.Now().Add(left)
	if d.timer == nil {
		d.timer = time.AfterFunc(left, d.fire)
	} else {
		d.timer.Reset(left)
	}
}

// fire is called by the timer. One that was stopped or reset too late fires
// for a deadline that is no more, or that has not come.
func (d *deadline) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() {
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left)
		return
	}
	d.at = time.Time{}
	d.end.stop(deadlinePassed)
}
