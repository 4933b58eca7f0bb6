package mem

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/internal/localpipe"
)

// maxView is the length of the longest view of a lent slice, and bounds how long an
// interrupted Write waits for the reader.
const maxView = 1 << 20

// A pipe carries bytes from one conn to the other: first those in the ring, then those
// in lent. Nothing is written after lent, since the Write that lends its slice blocks
// until the slice is consumed or withdrawn.
type pipe struct {
	from *conn

	mu      sync.Mutex
	ring    ring
	lent    []byte // the rest of the slice of the blocked Write
	viewing bool   // the reader uses a part of lent

	writable, readable          sync.Cond // of one goroutine each
	writeDeadline, readDeadline deadline.Deadline

	writeClosed bool  // EOF follows the last byte
	writeErr    error // returned by every Write from now on
	readErr     error // returned by every Read from now on
}

var _ localpipe.Pipe = (*pipe)(nil)

func newPipe(from *conn) *pipe {
	p := &pipe{from: from}
	p.writable.L, p.readable.L = &p.mu, &p.mu
	p.writeDeadline = deadline.Deadline{L: &p.mu, Wake: p.writable.Signal}
	p.readDeadline = deadline.Deadline{L: &p.mu, Wake: p.readable.Signal}
	return p
}

// Write implements [localpipe.Pipe].
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.writeErrorLocked(); err != nil || len(b) == 0 {
		return 0, err
	}
	if p.ring.put(b) {
		p.readable.Signal()
		return len(b), nil
	}
	return p.lendLocked(b)
}

// lendLocked lets the reader consume b in place. It blocks until b is consumed or, after
// an error, until the reader has no view of b.
func (p *pipe) lendLocked(b []byte) (int, error) {
	p.lent = b
	p.readable.Signal()
	var err error
	for len(p.lent) > 0 {
		if err = p.writeErrorLocked(); err != nil && !p.viewing {
			break
		}
		p.writable.Wait()
	}
	n := len(b) - len(p.lent)
	p.lent = nil
	if n == len(b) {
		return n, nil
	}
	p.readable.Signal() // The reader may wait for the end of the interrupted Write.
	return n, err
}

// TryWrite implements [localpipe.Pipe].
func (p *pipe) TryWrite(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writeErrorLocked() != nil || len(b) > 0 && !p.ring.put(b) {
		return false
	}
	p.readable.Signal()
	return true
}

// writeErrorLocked returns the error that interrupts a Write now.
func (p *pipe) writeErrorLocked() error {
	if p.writeErr != nil {
		return p.writeErr
	}
	if p.writeDeadline.Passed() {
		return os.ErrDeadlineExceeded
	}
	if p.from.owner.killed.Load() {
		return transport.ErrClosed
	}
	return nil
}

// Peek implements [localpipe.Pipe].
func (p *pipe) Peek(limit int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.readErr != nil {
			return nil, p.readErr
		}
		if p.readDeadline.Passed() {
			return nil, os.ErrDeadlineExceeded
		}
		if p.ring.n > 0 {
			return p.ring.peek(limit), nil
		}
		if len(p.lent) > 0 && p.writeErrorLocked() == nil {
			p.viewing = true
			return p.lent[:min(limit, len(p.lent), maxView)], nil
		}
		if p.writeClosed && len(p.lent) == 0 {
			p.readErr = io.EOF
			p.readDeadline.Set(time.Time{})
			p.from.pair.forget(p)
			continue
		}
		p.readable.Wait()
	}
}

// Consume implements [localpipe.Pipe].
func (p *pipe) Consume(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.viewing {
		if p.ring.n > 0 { // The end of the pipe discards the ring.
			p.ring.drop(n)
		}
		return
	}
	p.viewing = false
	p.lent = p.lent[n:]
	if len(p.lent) == 0 || p.writeErrorLocked() != nil {
		p.writable.Signal()
	}
}

// end ends both sides and discards the bytes in the pipe.
func (p *pipe) end(writeErr, readErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writeErr == nil {
		p.writeErr = writeErr
	}
	if p.readErr == nil {
		p.readErr = readErr
	}
	p.ring = ring{}
	p.writeDeadline.Set(time.Time{})
	p.readDeadline.Set(time.Time{})
	p.writable.Signal()
	p.readable.Signal()
}

// CloseWrite implements [localpipe.Pipe].
func (p *pipe) CloseWrite() {
	p.mu.Lock()
	p.writeClosed = true
	if p.writeErr == nil || p.writeErr == errReaderClosed {
		p.writeErr = transport.ErrClosed
	}
	p.writeDeadline.Set(time.Time{})
	p.writable.Signal()
	p.readable.Signal()
	ended := p.readErr != nil
	p.mu.Unlock()
	if ended {
		p.from.pair.forget(p)
	}
}

// CloseRead implements [localpipe.Pipe].
func (p *pipe) CloseRead() {
	p.mu.Lock()
	if p.readErr == nil || p.readErr == io.EOF {
		p.readErr = transport.ErrClosed
	}
	if p.writeErr == nil {
		p.writeErr = errReaderClosed
	}
	p.ring = ring{}
	p.readDeadline.Set(time.Time{})
	p.readable.Signal()
	p.writable.Signal()
	ended := p.writeClosed
	p.mu.Unlock()
	if ended {
		p.from.pair.forget(p)
	}
}

// SetWriteDeadline implements [localpipe.Pipe].
func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writeErr != nil {
		return p.writeErr
	}
	p.writeDeadline.Set(t)
	p.readable.Signal() // If the deadline is removed in time, the reader continues with the lent slice.
	return nil
}

// SetReadDeadline implements [localpipe.Pipe].
func (p *pipe) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr != nil {
		return p.readErr
	}
	p.readDeadline.Set(t)
	return nil
}
