package client

import (
	"sync"
	"time"
)

const (
	// remindAfter is the wait before the first warning of a node. The pause between two
	// warnings doubles from remindAfter to remindMax.
	remindAfter = 3 * time.Second
	remindMax   = time.Minute
	// linksNamedMax is the maximum number of nodes that a warning of missing connections names.
	linksNamedMax = 10
)

// A reminder calls a function at growing intervals until it is stopped.
type reminder struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// remind starts a reminder. f gets the time since the start, and must not block.
func remind(f func(waited time.Duration)) *reminder {
	r := &reminder{}
	start, pause := time.Now(), remindAfter
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(pause, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.stopped {
			return
		}
		f(time.Since(start).Round(100 * time.Millisecond))
		pause = min(2*pause, remindMax)
		r.timer.Reset(pause)
	})
	return r
}

// stop ends the reminder. f does not run afterwards.
func (r *reminder) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.timer.Stop()
}
