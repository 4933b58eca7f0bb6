//go:build !linux

package tcp

import (
	"sync"
	"time"
)

// A polling would let somebody look for bytes without waiting.
type polling struct {
	r       *receiver
	mu      sync.Mutex
	despite time.Time // the deadline of the pipe
}

func (k *polling) init(r *receiver) {
	k.r = r
	if r.ch.held != nil {
		r.ch.held.putBefore(flowReader{r})
	}
}

// A flowReader gives a tls.Conn the bytes of the current subflow.
type flowReader struct{ r *receiver }

func (f flowReader) Read(p []byte) (int, error) { return f.r.readFlow(p) }

// limit sets the deadline of the socket. If another one follows, it interrupts a read as
// interrupt does, which the read may not have noticed yet; turn restores the deadline.
func (k *polling) limit(t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.despite = t
	if k.r.moving.Load() {
		t = past()
	}
	k.r.in.Load().setReadDeadline(t) // fails only if the pipe has ended
}

// interrupt makes a read that waits return.
func (k *polling) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.in.Load().setReadDeadline(past())
}

// restore sets the deadline of the pipe again.
func (k *polling) restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.in.Load().setReadDeadline(k.despite)
}

// swap has the pipe read from another subflow.
func (k *polling) swap(f *subflow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.in.Store(f)
	f.setReadDeadline(k.despite)
}

func (*polling) rest() {}

func (*receiver) note() {}

// decrypt reads at least one byte from the tls.Conn.
func (r *receiver) decrypt(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.ch.tls.Read(p)
	}
	return n, err
}
