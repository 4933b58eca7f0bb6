package sim

import (
	"slices"
	"sort"
	"sync"
	"time"
)

// A clock calls functions at given times, in the order of these times; at equal times in
// the order of their creation. It has one timer for all, since several timers that are
// due at one instant fire in any order.
type clock struct {
	mu      *sync.Mutex // guards the clock; held during the calls
	timer   *time.Timer // nil before the first event
	pending []*event    // in the order of their calls
	stopped bool
}

// An event is a scheduled call.
type event struct {
	at   time.Time
	call func()
}

// at schedules call for time t.
func (c *clock) at(t time.Time, call func()) *event {
	e := &event{at: t, call: call}
	if c.stopped {
		return e
	}
	i := sort.Search(len(c.pending), func(i int) bool { return c.pending[i].at.After(t) })
	c.pending = slices.Insert(c.pending, i, e)
	if i == 0 {
		c.arm()
	}
	return e
}

// cancel cancels an event, unless it is nil or past.
func (c *clock) cancel(e *event) {
	if i := slices.Index(c.pending, e); i >= 0 {
		c.pending = slices.Delete(c.pending, i, i+1)
	}
}

// arm sets the timer to the first event.
func (c *clock) arm() {
	if len(c.pending) == 0 {
		return
	}
	// In a synctest bubble, Reset with 0 would call run at once, while mu is held.
	wait := max(time.Nanosecond, time.Until(c.pending[0].at))
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.run)
		return
	}
	c.timer.Reset(wait)
}

// run makes the calls that are due. It locks mu.
func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) > 0 && !c.pending[0].at.After(time.Now()) {
		e := c.pending[0]
		c.pending = slices.Delete(c.pending, 0, 1)
		e.call()
	}
	c.arm()
}

// stop cancels all events, and ignores later ones.
func (c *clock) stop() {
	c.stopped = true
	c.pending = nil
	if c.timer != nil {
		c.timer.Stop()
	}
}

// A deadline interrupts a call that waits.
type deadline struct {
	passed bool
	event  *event
}

// setDeadline sets d to t, and calls wake when it passes. The zero time removes it.
func (c *clock) setDeadline(d *deadline, t time.Time, wake func()) {
	c.cancel(d.event)
	*d = deadline{}
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.passed = true
		wake()
		return
	}
	// time.Now has a monotonic reading, which t may lack.
	d.event = c.at(time.Now().Add(left), func() {
		d.passed = true
		wake()
	})
}
