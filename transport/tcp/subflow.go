package tcp

import (
	"sync/atomic"
	"syscall"
	"time"
)

// A subflow is one direction of a TCP connection that carries a part of the stream of a
// pipe. The first one of a pipe is half of its pipeSocket. When it stalls, the pipe
// migrates to another one.
type subflow struct {
	sock socket
	raw  syscall.RawConn
	ps   *pipeSocket // of the first subflow; otherwise nil

	// Set for subflows after the first:
	serial      uint32      // number of the migration
	after       uint32      // serial of the subflow with the bytes before start
	start       uint64      // offset of the first byte in the stream of the pipe
	prover      *prover     // authenticates the header
	unconfirmed atomic.Bool // the receiver has not confirmed that it has the socket
	failed      atomic.Bool // it never will
	finSent     bool        // the kernel counts the FIN as an unacknowledged byte
}

// newSubflow returns the first subflow of a pipe.
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

// endRead interrupts reads. It closes the socket unless another pipe uses it.
func (f *subflow) endRead() {
	if f.ps != nil {
		f.ps.endRead()
		return
	}
	f.sock.Close()
}

// endWrite interrupts writes. It closes the socket unless another pipe uses it.
func (f *subflow) endWrite() {
	if f.ps != nil {
		f.ps.endWrite()
		return
	}
	f.sock.Close()
}

// closeWrite sends a FIN.
func (f *subflow) closeWrite() {
	f.finSent = true
	_ = f.sock.CloseWrite()
}

// An unacker is a socket of a test that simulates its own state.
type unacker interface {
	unacked() int
	sample() sample
}

// sample returns the state of the socket, if the system reports it.
func (f *subflow) sample() (sample, bool) { return sampleOf(f.sock, f.raw) }

// sampleOf returns the state of a socket, if the system reports it. raw may be nil.
func sampleOf(sock socket, raw syscall.RawConn) (sample, bool) {
	if u, ok := sock.(unacker); ok {
		return u.sample(), true
	}
	if raw == nil {
		var err error
		if raw, err = sock.SyscallConn(); err != nil {
			return sample{}, false
		}
	}
	return sampleSocket(raw)
}

// unacked returns the number of last written bytes that the kernel of the peer may lack, at
// most the given number. The peer's kernel keeps acknowledged bytes until its process has read
// them.
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

// holdsBytes reports whether the socket has written bytes, or a FIN, that the kernel of the peer may lack. A socket that both sides have
// closed holds none, although the peer may not have read it to its end yet.
func (f *subflow) holdsBytes() bool {
	if u, ok := f.sock.(unacker); ok {
		return u.unacked() > 0
	}
	n, ok := queuedBytes(f.raw)
	return !ok || n > 0
}
