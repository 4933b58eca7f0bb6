package shm

import (
	"sync"
	"time"
)

// restTime is for how long a ring keeps memory that is not used: for as long at
// least, and for twice as long at the most. To get it again takes far longer than to
// copy as much.
const restTime = 30 * time.Second

// A keeper looks after the memory of all rings that a node writes to. Its timer runs
// as long as one of them is full.
type keeper struct {
	look  func() (more bool)
	every time.Duration

	mu      sync.Mutex
	timer   *time.Timer
	running bool
	ended   bool
}

// start has the keeper look, after a while.
func (k *keeper) start() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.running || k.ended:
		return
	case k.timer == nil:
		k.timer = time.AfterFunc(k.every, k.round)
	default:
		k.timer.Reset(k.every)
	}
	k.running = true
}

// round is called by the timer.
func (k *keeper) round() {
	k.mu.Lock()
	k.running = false
	k.mu.Unlock()
	if k.look() {
		k.start()
	}
}

// end stops the keeper for good.
func (k *keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	if k.timer != nil {
		k.timer.Stop()
	}
}
