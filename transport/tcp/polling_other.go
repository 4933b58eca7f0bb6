//go:build !linux

package tcp

import (
	"sync"
	"time"
)

// A poller holds the deadline of a receiver. Receivers cannot be polled here.
type poller struct {
	r        *receiver
	mu       sync.Mutex
	deadline time.Time // of the pipe
}

func (k *poller) init(r *receiver) {
	k.r = r
	if r.ps.records != nil {
		r.ps.records.setSource(flowReader{r})
	}
}

// A flowReader is the source of a tls.Conn: the current subflow.
type flowReader struct{ r *receiver }

func (f flowReader) Read(p []byte) (int, error) { return f.r.readFlow(p) }

// setDeadline sets the deadline of the pipe. If another subflow follows, the socket stays
// interrupted, since a read may not have noticed that yet. nextFlow then restores the
// deadline.
func (k *poller) setDeadline(t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = t
	if k.r.hasNext.Load() {
		t = past()
	}
	k.r.flow.Load().setReadDeadline(t) // fails only if the pipe has ended
}

// interrupt interrupts a blocked read.
func (k *poller) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.flow.Load().setReadDeadline(past())
}

// restoreDeadline sets the read deadline to that of the pipe.
func (k *poller) restoreDeadline() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.flow.Load().setReadDeadline(k.deadline)
}

// setFlow makes another subflow the current one.
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
