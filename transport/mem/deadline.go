package mem

import (
	"sync"
	"time"
)

// A deadline wakes the goroutine that waits at one end of a pipe. The mutex of the pipe
// guards it.
type deadline struct {
	mu     *sync.Mutex
	cond   *sync.Cond // signalled when the deadline passes
	passed bool
	at     time.Time // zero if there is no deadline, or if it has passed
	timer  *time.Timer
}

// set replaces the deadline by t. The zero time removes it.
func (d *deadline) set(t time.Time) {
	d.stop()
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		d.cond.Signal()
		return
	}
	// time.Now has a monotonic reading, which t may lack.
	d.at = time.Now().Add(left)
	if d.timer == nil {
		d.timer = time.AfterFunc(left, d.fire)
	} else {
		d.timer.Reset(left)
	}
}

// stop removes the deadline.
func (d *deadline) stop() {
	d.passed, d.at = false, time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
}

// fire is called by the timer. The deadline may have been removed or replaced while
// fire waited for the mutex.
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
	d.passed, d.at = true, time.Time{}
	d.cond.Signal()
}
