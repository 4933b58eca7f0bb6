// Package deadline implements the deadlines of pipes, and has those of handshakes and ends of connections.
package deadline

import (
	"sync"
	"time"
)

// Handshake bounds a handshake with a peer, and each step of one that both sides take. It takes seconds while many ranks on a few processors join.
const Handshake = 20 * time.Second

// Linger bounds the time for a peer to end its use of a connection after the end of the other side: to read it and to close.
const Linger = time.Second

// A Deadline is a time that may change, after which calls on one end of a pipe fail. L guards it. The zero value
// with L and Wake has no deadline.
type Deadline struct {
	L    sync.Locker
	Wake func() // is called when the deadline passes, with L locked

	passed bool
	at     time.Time // zero if there is no deadline, or if it has passed
	timer  *time.Timer
}

// Passed reports whether the deadline has passed.
func (d *Deadline) Passed() bool { return d.passed }

// Set replaces the deadline by t. The zero time removes it.
func (d *Deadline) Set(t time.Time) {
	d.passed, d.at = false, time.Time{}
	if d.timer != nil {
		d.timer.Stop()
	}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		d.Wake()
		return
	}
	d.at = time.Now().Add(left) // has a monotonic reading, which t may lack
	if d.timer == nil {
		d.timer = time.AfterFunc(left, d.fire)
	} else {
		d.timer.Reset(left)
	}
}

// fire is called by the timer. The deadline may have been removed or replaced while fire waited for L.
func (d *Deadline) fire() {
	d.L.Lock()
	defer d.L.Unlock()
	if d.at.IsZero() {
		return
	}
	if left := time.Until(d.at); left > 0 {
		d.timer.Reset(left)
		return
	}
	d.passed, d.at = true, time.Time{}
	d.Wake()
}
