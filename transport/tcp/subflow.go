package tcp

import (
	"sync/atomic"
	"syscall"
	"time"
)

// A subflow is one direction of a TCP connection that carries bytes of a pipe. A pipe
// begins on the one of its channel. When that makes no progress, as packets are lost,
// the pipe moves to another one.
type subflow struct {
	sock socket
	raw  syscall.RawConn
	ps   *pipeSocket // that it is a half of; nil if the socket carries only this pipe

	// Of subflows that a pipe has moved to:
	serial      uint32      // counts the moves of the pipe
	after       uint32      // the serial of the subflow with the bytes before start
	start       uint64      // the offset of the first byte in the stream of the pipe
	prover      *prover     // signs the header
	unconfirmed atomic.Bool // the receiver has not said yet that it has the socket
	failed      atomic.Bool // and will not
	finSent     bool        // the sender has shut the direction down; FIN takes a sequence number, as a byte does
}

// half is the subflow of a pipe on its channel.
func (ps *pipeSocket) newSubflow() *subflow { return &subflow{sock: ps.socket, raw: ps.raw, ps: ps} }

func (f *subflow) setReadDeadline(t time.Time) error {
	if f.ps != nil {
		return f.ps.SetReadDeadline(t)
	}
	return f.sock.SetReadDeadline(t)
}

func (f *subflow) setWriteDeadline(t time.Time) error {
	if f.ps != nil {
		return f.ps.SetWriteDeadline(t)
	}
	return f.sock.SetWriteDeadline(t)
}

// endRead interrupts a read, and ends the socket unless another pipe uses it.
func (f *subflow) endRead() {
	if f.ps != nil {
		f.ps.endRead()
		return
	}
	f.sock.Close()
}

// endWrite is endRead for writes.
func (f *subflow) endWrite() {
	if f.ps != nil {
		f.ps.endWrite()
		return
	}
	f.sock.Close()
}

// closeWrite tells the peer that nothing follows.
func (f *subflow) closeWrite() {
	f.finSent = true
	f.sock.CloseWrite()
}

// An unacker is a socket that knows itself how many bytes are unacknowledged, and how far
// they have come: one of a test.
type unacker interface {
	unacked() int
	sample() sample
}

// sample returns the state of the socket, if the system reports it.
func (f *subflow) sample() (sample, bool) {
	if u, ok := f.sock.(unacker); ok {
		return u.sample(), true
	}
	return sampleSocket(f.raw)
}

// unacked is how many of the last bytes written the peer's kernel may not have; at most
// most. Acknowledged bytes it keeps until its process has read them.
func (f *subflow) unacked(most int) int {
	n := most
	if u, ok := f.sock.(unacker); ok {
		n = u.unacked()
	} else if queued, ok := queuedBytes(f.raw); ok {
		n = queued
		if f.finSent {
			n = max(0, n-1)
		}
	}
	return min(n, most)
}
