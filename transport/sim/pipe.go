package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/internal/localpipe"
)

// maxPiece is the number of bytes of a pipe that travel, and are lost, together.
const maxPiece = 16 << 10

var errReaderClosed = fmt.Errorf("sim: the reader closed the pipe: %w", transport.ErrPeerClosed)

// A pipe carries bytes from one conn to its peer.
type pipe struct {
	network *Network
	from    *conn
	flow    orderedFlow
	unread  int // number of bytes written and not yet read, at most Config.Window

	writable      sync.Cond
	writeErr      error // returned by every Write from now on
	writeDeadline deadline

	arrived      [][]byte // none of them empty
	atEnd        bool     // EOF follows the bytes in arrived
	readable     sync.Cond
	readErr      error // returned by every Read from now on
	readDeadline deadline
}

var _ localpipe.Pipe = (*pipe)(nil)

// newPipe returns a pipe, and announces it to the peer.
func newPipe(from *conn) *pipe {
	n := from.network
	p := &pipe{
		network: n,
		from:    from,
		flow:    orderedFlow{link: from.notices.link, rng: n.rng("pipe %s/%d", from.stream, from.opened)},
	}
	p.writable.L, p.readable.L = &n.mu, &n.mu
	from.pipes[p] = from.opened
	from.opened++
	p.flow.send(0, func() { from.peer.incoming.push(p) })
	return p
}

// Write implements [localpipe.Pipe]. Like the other methods of that interface, it locks
// Network.mu.
func (p *pipe) Write(b []byte) (int, error) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	n := 0
	for {
		if err := p.writeError(); err != nil {
			return n, err
		}
		n += p.fill(b[n:])
		if n == len(b) {
			return n, nil
		}
		p.writable.Wait()
	}
}

// TryWrite implements [localpipe.Pipe].
func (p *pipe) TryWrite(b []byte) bool {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.writeError() != nil || len(b) > p.network.config.Window-p.unread {
		return false
	}
	p.fill(b)
	return true
}

// fill sends as much of b as the window allows, and returns the number of bytes.
func (p *pipe) fill(b []byte) int {
	n := min(len(b), p.network.config.Window-p.unread)
	p.unread += n
	if p.from.stalls && n > 0 {
		p.from.stalls = false
		p.from.endAfter(time.Now(), stallTime)
	}
	for rest := b[:n]; len(rest) > 0; {
		data := bytes.Clone(rest[:min(len(rest), maxPiece)])
		rest = rest[len(data):]
		p.flow.send(len(data), func() { p.arrive(data) })
	}
	return n
}

// writeError returns the error that interrupts a Write now.
func (p *pipe) writeError() error {
	if p.writeErr != nil {
		return p.writeErr
	}
	if p.writeDeadline.passed {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// arrive passes bytes to the reader.
func (p *pipe) arrive(data []byte) {
	if p.readErr != nil || p.from.cut {
		return
	}
	if data = p.flow.link.deliver(p.from, data); len(data) > 0 {
		p.arrived = append(p.arrived, data)
		p.readable.Signal()
	}
}

// Peek implements [localpipe.Pipe].
func (p *pipe) Peek(limit int) ([]byte, error) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	for {
		switch {
		case p.readErr != nil:
			return nil, p.readErr
		case p.readDeadline.passed:
			return nil, os.ErrDeadlineExceeded
		case len(p.arrived) > 0:
			return p.arrived[0][:min(limit, len(p.arrived[0]))], nil
		case p.atEnd:
			p.readErr = io.EOF
			p.forget()
		default:
			p.readable.Wait()
		}
	}
}

// Consume implements [localpipe.Pipe].
func (p *pipe) Consume(n int) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if len(p.arrived) == 0 {
		return // The end of the pipe discards its bytes.
	}
	if p.arrived[0] = p.arrived[0][n:]; len(p.arrived[0]) == 0 {
		p.arrived[0] = nil
		p.arrived = p.arrived[1:]
	}
	p.unread -= n
	p.writable.Signal()
}

// CloseWrite implements [localpipe.Pipe].
func (p *pipe) CloseWrite() {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.from.err == nil && !errors.Is(p.writeErr, transport.ErrClosed) {
		p.flow.send(0, func() {
			if p.atEnd = !p.from.cut; p.atEnd {
				p.readable.Signal()
			}
		})
		p.writeErr = nil // It may be errReaderClosed.
	}
	p.endWriting(transport.ErrClosed)
}

// CloseRead implements [localpipe.Pipe].
func (p *pipe) CloseRead() {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	to := p.from.peer
	if to.err == nil && p.readErr == nil {
		to.notices.send(0, func() { p.endWriting(errReaderClosed) })
	}
	if p.readErr == io.EOF {
		p.readErr = nil
	}
	p.endReading(transport.ErrClosed)
}

// endWriting ends the sending side with the given reason, unless it has ended.
func (p *pipe) endWriting(reason error) {
	if p.writeErr == nil {
		p.writeErr = reason
	}
	p.network.clock.setDeadline(&p.writeDeadline, time.Time{}, nil)
	p.writable.Signal()
	p.forget()
}

// endReading ends the receiving side with the given reason, unless it has ended.
func (p *pipe) endReading(reason error) {
	if p.readErr == nil {
		p.readErr = reason
	}
	p.arrived = nil
	p.flow.drop()
	p.network.clock.setDeadline(&p.readDeadline, time.Time{}, nil)
	p.readable.Signal()
	p.forget()
}

// forget removes the pipe from its conn after both sides have ended.
func (p *pipe) forget() {
	if p.writeErr != nil && p.readErr != nil {
		delete(p.from.pipes, p)
	}
}

// SetWriteDeadline implements [localpipe.Pipe].
func (p *pipe) SetWriteDeadline(t time.Time) error {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.writeErr != nil {
		return p.writeErr
	}
	p.network.clock.setDeadline(&p.writeDeadline, t, p.writable.Signal)
	return nil
}

// SetReadDeadline implements [localpipe.Pipe].
func (p *pipe) SetReadDeadline(t time.Time) error {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.readErr != nil {
		return p.readErr
	}
	p.network.clock.setDeadline(&p.readDeadline, t, p.readable.Signal)
	return nil
}
