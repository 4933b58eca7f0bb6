//go:build !linux

package tcp

import (
	"sync"
	"time"
)

// A polling would let somebody look for bytes without waiting.
type poller struct {
	r        *receiver
	mu       sync.Mutex
	deadline time.Time // the deadline of the pipe
}

func (k *poller) init(r *receiver) {
	k.r = r
	if r.ps.records != nil {
		r.ps.records.setSource(flowReader{r})
	}
}

// A flowReader gives a tls.Conn the bytes of the current subflow.
type flowReader struct{ r *receiver }

func (f flowReader) Read(p []byte) (int, error) { return f.r.readFlow(p) }

// limit sets the deadline of the socket. If another one follows, it interrupts a read as
// interrupt does, which the read may not have noticed yet; turn restores the deadline.
func (k *poller) setDeadline(t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = t
	if k.r.hasNext.Load() {
		t = past()
	}
	k.r.flow.Load().setReadDeadline(t) // fails only if the pipe has ended
}

// interrupt makes a read that waits return.
func (k *poller) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.flow.Load().setReadDeadline(past())
}

// restore sets the deadline of the pipe again.
func (k *poller) restoreDeadline() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.flow.Load().setReadDeadline(k.deadline)
}

// swap has the pipe read from another subflow.
func (k *poller) setFlow(f *subflow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.flow.Store(f)
	f.setReadDeadline(k.deadline)
}

func (*poller) beginRead() {}

func (*receiver) updateBuffered() {}

// decrypt reads at least one byte from the tls.Conn.
func (r *receiver) decrypt(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.ps.tls.Read(p)
	}
	return n, err
}
