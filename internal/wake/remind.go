package wake

import (
	"sync"
	"time"
)

const (
	// RemindAfter is the pause before the first report of a wait for other processes.
	RemindAfter = 3 * time.Second
	// RemindMax limits the pause between two reports, which doubles.
	RemindMax = time.Minute
)

// A Reminder calls a function at growing intervals until it is stopped.
type Reminder struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// Remind starts a Reminder. It calls f after a pause and then after pauses that double up to [RemindMax]. f gets the time since the
// start, and must not block.
func Remind(pause time.Duration, f func(waited time.Duration)) *Reminder {
	r := &Reminder{}
	start := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(pause, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.stopped {
			return
		}
		f(time.Since(start).Round(100 * time.Millisecond))
		pause = min(2*pause, RemindMax)
		r.timer.Reset(pause)
	})
	return r
}

// Stop ends the Reminder. Its function does not run afterwards.
func (r *Reminder) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.timer.Stop()
}
