package shm

import (
	"sync"
	"time"
)

// idleTime is the shortest time that a ring keeps unused memory; the longest is twice that.
// Reserving memory again takes far longer than copying as much.
const idleTime = 30 * time.Second

// A reclaimer periodically reclaims the memory of idle rings that a node writes to. Its
// timer runs while a ring has all of its memory.
type reclaimer struct {
	reclaim func() (more bool)
	every   time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	running bool
	ended   bool
}

// start starts the timer, unless it runs.
func (k *reclaimer) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.running || k.ended:
		return
	case k.timer == nil:
		k.timer = time.AfterFunc(k.every, k.fire)
	default:
		k.timer.Reset(k.every)
	}
	k.running = true
}

// fire is called by the timer.
func (k *reclaimer) fire() {
	k.mu.Lock()
	k.running = false
	k.mu.Unlock()
	if k.reclaim() {
		k.start()
	}
}

// end stops the timer for good.
func (k *reclaimer) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	if k.timer != nil {
		k.timer.Stop()
	}
}
