package mem

import (
	"sync"
	"time"
)

// A gate is where one goroutine waits until another one wakes it. All of it is
// guarded by the mutex of its pipe.
//
// A token is sent only to a goroutine that waits, and that goroutine always
// takes it. So the channel never holds more than one, and a wait needs neither
// select nor allocation.
type gate struct {
	waiting bool
	token   chan struct{} // of capacity 1
}

// wait gives mu up until the gate is opened. It may be opened for nothing:
// the caller looks again.
func (g *gate) wait(mu *sync.Mutex) {
	g.waiting = true
	mu.Unlock()
	<-g.token
	mu.Lock()
}

// open wakes the goroutine that waits, if there is one.
func (g *gate) open() {
	if g.waiting {
		g.waiting = false
		g.token <- struct{}{}
	}
}

// A deadline is the time at which one end of a pipe stops waiting. It is
// guarded by the mutex of its pipe.
type deadline struct {
	mu     *sync.Mutex
	gate   *gate // of the end that waits
	passed bool
	at     time.Time // zero if there is none, or if it has passed
	timer  *time.Timer
}

// set replaces the deadline by t.
func (d *deadline) set(t time.Time) {
	d.stop()
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		d.gate.open()
		return
	}
	// Now has a monotonic reading, which t may lack.
	d.at = time.Now().Add(left)
	if d.timer == nil {
		d.timer = time.AfterFunc(left, d.fire)
	} else {
		d.timer.Reset(left)
	}
}

// stop takes the deadline away.
func (d *deadline) stop() {
	d.passed, d.at = false, time.Time{}
	if d.timer != nil {
		d.timer.Stop()
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
	d.passed, d.at = true, time.Time{}
	d.gate.open()
}
