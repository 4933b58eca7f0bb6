package mem

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// viewBytesMax bounds how long an interrupted Write waits for the reader,
// which is inside a view of at most so much of its slice.
const viewBytesMax = 1 << 20

// A pipe carries bytes from one conn to the other. Its bytes are those in the
// ring and then those in lent: a Write that has lent its slice blocks until
// the slice is consumed or withdrawn, so nothing is ever written behind it.
type pipe struct {
	from *conn

	mu      sync.Mutex
	ring    ring
	lent    []byte // what is left of the slice of the Write that blocks
	viewing bool   // the reader looks at lent

	writer, reader       gate
	writeLimit, readTill deadline

	wroteAll bool  // the sender has closed: EOF behind the last byte
	writeErr error // why nothing more can be written, once that is so
	readErr  error // why nothing more can be read
}

func newPipe(from *conn) *pipe {
	p := &pipe{
		from:   from,
		writer: gate{token: make(chan struct{}, 1)},
		reader: gate{token: make(chan struct{}, 1)},
	}
	p.writeLimit = deadline{mu: &p.mu, gate: &p.writer}
	p.readTill = deadline{mu: &p.mu, gate: &p.reader}
	return p
}

// write implements Sender.Write.
func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cannotWrite(); err != nil || len(b) == 0 {
		return 0, err
	}
	if p.ring.put(b) {
		p.reader.open()
		return len(b), nil
	}
	return p.lend(b)
}

// lend lets the reader consume b where it lies. It returns when b is consumed,
// or withdraws what is left of it as soon as no view of it is in use.
func (p *pipe) lend(b []byte) (int, error) {
	p.lent = b
	p.reader.open()
	var err error
	for len(p.lent) > 0 {
		if err = p.cannotWrite(); err != nil && !p.viewing {
			break
		}
		p.writer.wait(&p.mu)
	}
	n := len(b) - len(p.lent)
	p.lent = nil
	if n == len(b) {
		return n, nil
	}
	// The reader has not begun another view since the interruption.
	p.reader.open()
	return n, err
}

// tryWrite implements TryWriter.TryWrite.
func (p *pipe) tryWrite(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cannotWrite() != nil || len(b) > 0 && !p.ring.put(b) {
		return false
	}
	p.reader.open()
	return true
}

// cannotWrite says why a Write must not go on.
func (p *pipe) cannotWrite() error {
	if p.writeErr != nil {
		return p.writeErr
	}
	if p.writeLimit.passed {
		return os.ErrDeadlineExceeded
	}
	if p.from.owner.killed.Load() {
		return transport.ErrClosed
	}
	return nil
}

// next waits for bytes to read and returns the first piece of them, at most
// limit. The caller gives it back with done.
func (p *pipe) next(limit int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.readErr != nil {
			return nil, p.readErr
		}
		if p.readTill.passed {
			return nil, os.ErrDeadlineExceeded
		}
		if p.ring.n > 0 {
			return p.ring.peek(limit), nil
		}
		if len(p.lent) > 0 && p.cannotWrite() == nil {
			p.viewing = true
			return p.lent[:min(limit, len(p.lent), viewBytesMax)], nil
		}
		if p.wroteAll && len(p.lent) == 0 {
			p.readErr = io.EOF
			p.readTill.stop()
			p.from.link.forget(p)
			continue
		}
		p.reader.wait(&p.mu)
	}
}

// done ends the use of a piece, of which the reader has consumed k bytes.
func (p *pipe) done(k int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.viewing {
		// An ended pipe has dropped its ring.
		if p.ring.n > 0 {
			p.ring.drop(k)
		}
		return
	}
	p.viewing = false
	p.lent = p.lent[k:]
	if len(p.lent) == 0 || p.cannotWrite() != nil {
		p.writer.open()
	}
}

// end stops both sides at once and drops what is in the pipe.
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
	p.writeLimit.stop()
	p.readTill.stop()
	p.writer.open()
	p.reader.open()
}

// closeWriting implements Sender.Close.
func (p *pipe) closeWriting() {
	p.mu.Lock()
	p.wroteAll = true
	if p.writeErr == nil || p.writeErr == errReaderLeft {
		p.writeErr = transport.ErrClosed
	}
	p.writeLimit.stop()
	p.writer.open()
	p.reader.open()
	over := p.readErr != nil
	p.mu.Unlock()
	if over {
		p.from.link.forget(p)
	}
}

// closeReading implements Receiver.Close.
func (p *pipe) closeReading() {
	p.mu.Lock()
	if p.readErr == nil || p.readErr == io.EOF {
		p.readErr = transport.ErrClosed
	}
	if p.writeErr == nil {
		p.writeErr = errReaderLeft
	}
	p.ring = ring{}
	p.readTill.stop()
	p.reader.open()
	p.writer.open()
	over := p.wroteAll
	p.mu.Unlock()
	if over {
		p.from.link.forget(p)
	}
}

func (p *pipe) setWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writeErr != nil {
		return p.writeErr
	}
	p.writeLimit.set(t)
	p.reader.open() // it may go on with a slice that is no longer withdrawn
	return nil
}

func (p *pipe) setReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr != nil {
		return p.readErr
	}
	p.readTill.set(t)
	return nil
}
