package sim

import (
	"container/heap"
	"sync"
	"time"
)

// A clock calls functions at given times, in the order of these times; at equal times in
// the order of their creation. It has one timer for all, since several timers that are
// due at one instant fire in any order.
type clock struct {
	mu      *sync.Mutex // guards the clock; held during the calls
	timer   *time.Timer // nil before the first event
	pending events
	created uint64 // number of events created
	stopped bool
}

// An event is a scheduled call.
type event struct {
	at    time.Time
	order uint64
	call  func()
	index int // in clock.pending, or -1
}

// at schedules call for time t.
func (c *clock) at(t time.Time, call func()) *event {
	e := &event{at: t, order: c.created, call: call, index: -1}
	c.created++
	if c.stopped {
		return e
	}
	heap.Push(&c.pending, e)
	if e.index == 0 {
		c.arm()
	}
	return e
}

// cancel cancels an event, unless it is nil or past.
func (c *clock) cancel(e *event) {
	if e != nil && e.index >= 0 {
		heap.Remove(&c.pending, e.index)
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
		heap.Pop(&c.pending).(*event).call()
	}
	c.arm()
}

// stop cancels all events, and ignores later ones.
func (c *clock) stop() {
	c.stopped = true
	for _, e := range c.pending {
		e.index = -1
	}
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

// events implements heap.Interface.
type events []*event

func (h events) Len() int { return len(h) }

func (h events) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].order < h[j].order
}

func (h events) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *events) Push(x any) {
	e := x.(*event)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *events) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.index = -1
	return e
}
