package tcp

import (
	"sync"
	"sync/atomic"
	"time"
)

// A readDeadline is the read deadline of a receiver. The deadline of its socket also interrupts waitSocket.
type readDeadline struct {
	r          *receiver
	suppressed bool // the kernel reports no data of the socket; used only by the goroutine that reads or polls

	mu          sync.Mutex
	waiting     bool        // WaitReadable waits for the socket
	interrupted atomic.Bool // waitSocket must return; it restores the deadline
	deadline    time.Time   // of the pipe
}

// setDeadline sets the deadline of the pipe.
func (k *readDeadline) setDeadline(t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = t
	if !k.interrupted.Load() {
		k.r.ps.SetReadDeadline(t) // fails only if the pipe has ended
	}
}
