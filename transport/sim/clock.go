package sim

import (
	"container/heap"
	"sync"
	"time"
)

// A clock calls functions at their time, in the order of their times, and of
// their creation where times are equal. One timer serves all of them, for
// timers of their own would fire in any order at one instant.
type clock struct {
	mu      *sync.Mutex // held during the calls
	timer   *time.Timer // made when first needed
	pending events
	made    uint64
	stopped bool
}

// An event is a call that is to be made.
type event struct {
	at    time.Time
	order uint64
	call  func()
	index int // in clock.pending, or -1
}

// at has call called at the given time, with mu held.
func (c *clock) at(t time.Time, call func()) *event {
	e := &event{at: t, order: c.made, call: call, index: -1}
	c.made++
	if c.stopped {
		return e
	}
	heap.Push(&c.pending, e)
	if e.index == 0 {
		c.arm()
	}
	return e
}

// cancel takes back an event, which may be nil or over.
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
	// Within a bubble Reset would call run itself, with mu held, if it were due.
	wait := max(time.Nanosecond, time.Until(c.pending[0].at))
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.run)
		return
	}
	c.timer.Reset(wait)
}

// run makes the calls that are due. It takes mu itself.
func (c *clock) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.pending) > 0 && !c.pending[0].at.After(time.Now()) {
		heap.Pop(&c.pending).(*event).call()
	}
	c.arm()
}

// stop makes no more calls.
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

// A deadline is the time at which a call stops waiting.
type deadline struct {
	passed bool
	event  *event
}

// setDeadline replaces d by t, and calls wake when it has passed.
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
	// Now has a monotonic reading, which t may lack.
	d.event = c.at(time.Now().Add(left), func() {
		d.passed = true
		wake()
	})
}

// events is a heap.
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
