package tcp

import (
	"sync"
	"sync/atomic"
	"time"
)

// A flowDeadline is the read deadline of a receiver, which interrupts its goroutines.
type flowDeadline struct {
	r          *receiver
	suppressed bool // the kernel reports no data of the socket; used only by the goroutine that reads or polls

	mu          sync.Mutex
	waiting     bool        // WaitReadable waits for the socket
	interrupted atomic.Bool // waitSocket must return; it restores the deadline
	deadline    time.Time   // of the pipe
}

// interrupt interrupts a blocked read or waitSocket.
func (k *flowDeadline) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting {
		k.interrupted.Store(true)
	}
	k.r.flow.Load().setReadDeadline(past())
}

// restoreDeadline sets the read deadline to that of the pipe. An interrupted waitSocket
// does so itself.
func (k *flowDeadline) restoreDeadline() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.interrupted.Load() {
		k.r.flow.Load().setReadDeadline(k.deadline)
	}
}

// setFlow makes another subflow the current one. Its reports are not suppressed. A
// waitSocket for the previous one was interrupted.
func (k *flowDeadline) setFlow(f *subflow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.flow.Store(f)
	k.suppressed = false
	f.setReadDeadline(k.deadline)
}

// setDeadline sets the deadline of the pipe. If another subflow follows, the socket stays
// interrupted, since a read may not have noticed that yet. nextFlow then restores the
// deadline.
func (k *flowDeadline) setDeadline(t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = t
	if k.r.hasNext.Load() {
		t = past()
	}
	if !k.interrupted.Load() {
		k.r.flow.Load().setReadDeadline(t) // fails only if the pipe has ended
	}
}
