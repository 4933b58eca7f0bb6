package shm

import (
	"sync"
	"time"
)

// A deadline stops one end of a pipe at a time that may change.
type deadline struct {
	mu    sync.Mutex
	end   *end
	at    time.Time // zero without a deadline, or after it
	timer *time.Timer
}

// set replaces the deadline. The zero time removes it.
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
	d.at = time.Now().Add(left) // has a monotonic reading, which t may lack
	if d.timer == nil {
		d.timer = time.AfterFunc(left, d.fire)
	} else {
		d.timer.Reset(left)
	}
}

// fire is called by the timer. A timer that was stopped or reset too late fires for a
// deadline that was removed or moved.
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
