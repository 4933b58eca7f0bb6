package sim

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// pieceBytesMax is how many bytes of a pipe travel, and are lost, together.
const pieceBytesMax = 16 << 10

var errReaderLeft = fmt.Errorf("sim: the reader closed the pipe: %w", transport.ErrPeerClosed)

// A pipe carries bytes from one conn to its peer.
type pipe struct {
	network *Network
	from    *conn
	lane    lane
	unread  int // bytes written and not yet read: at most Config.Window

	writable   sync.Cond
	writeErr   error
	writeLimit deadline

	arrived  [][]byte // none of them empty
	atEnd    bool     // nothing follows what has arrived
	readable sync.Cond
	readErr  error
	readTill deadline
}

// newPipe returns a pipe whose existence is on its way to the peer.
func newPipe(from *conn) *pipe {
	n := from.network
	p := &pipe{
		network: n,
		from:    from,
		lane:    lane{link: from.notices.link, chance: n.chance("pipe %s/%d", from.stream, from.opened)},
	}
	p.writable.L, p.readable.L = &n.mu, &n.mu
	from.pipes[p] = from.opened
	from.opened++
	p.lane.send(0, func() { from.peer.incoming.push(p) })
	return p
}

// write takes Network.mu itself, as do all methods that ends.go calls.
func (p *pipe) write(b []byte) (int, error) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	n := 0
	for {
		if err := p.cannotWrite(); err != nil {
			return n, err
		}
		n += p.fill(b[n:])
		if n == len(b) {
			return n, nil
		}
		p.writable.Wait()
	}
}

// tryWrite writes all of b or nothing.
func (p *pipe) tryWrite(b []byte) bool {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.cannotWrite() != nil || len(b) > p.network.config.Window-p.unread {
		return false
	}
	p.fill(b)
	return true
}

// fill sends as much of b as the window allows, and returns how much.
func (p *pipe) fill(b []byte) int {
	n := min(len(b), p.network.config.Window-p.unread)
	p.unread += n
	for rest := b[:n]; len(rest) > 0; {
		data := bytes.Clone(rest[:min(len(rest), pieceBytesMax)])
		rest = rest[len(data):]
		p.lane.send(len(data), func() { p.arrive(data) })
	}
	return n
}

func (p *pipe) cannotWrite() error {
	if p.writeErr != nil {
		return p.writeErr
	}
	if p.writeLimit.passed {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// arrive hands bytes to the reader.
func (p *pipe) arrive(data []byte) {
	if p.readErr == nil {
		p.arrived = append(p.arrived, data)
		p.readable.Signal()
	}
}

// next waits for bytes to read and returns the first piece of them, at most
// limit. The caller gives it back with done.
func (p *pipe) next(limit int) ([]byte, error) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	for {
		switch {
		case p.readErr != nil:
			return nil, p.readErr
		case p.readTill.passed:
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

// done says that the reader has consumed k bytes.
func (p *pipe) done(k int) {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if len(p.arrived) == 0 {
		return // the pipe has ended meanwhile
	}
	if p.arrived[0] = p.arrived[0][k:]; len(p.arrived[0]) == 0 {
		p.arrived[0] = nil
		p.arrived = p.arrived[1:]
	}
	p.unread -= k
	p.writable.Signal()
}

// closeWriting implements Sender.Close.
func (p *pipe) closeWriting() {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.from.err == nil && p.writeErr != transport.ErrClosed {
		p.lane.send(0, func() {
			p.atEnd = true
			p.readable.Signal()
		})
		p.writeErr = nil // even if the reader left before
	}
	p.endWriting(transport.ErrClosed)
}

// closeReading implements Receiver.Close.
func (p *pipe) closeReading() {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	to := p.from.peer
	if to.err == nil && p.readErr == nil {
		to.notices.send(0, func() { p.endWriting(errReaderLeft) })
	}
	if p.readErr == io.EOF {
		p.readErr = nil
	}
	p.endReading(transport.ErrClosed)
}

// endWriting ends the sending side for the given reason, unless it has ended.
func (p *pipe) endWriting(reason error) {
	if p.writeErr == nil {
		p.writeErr = reason
	}
	p.network.clock.setDeadline(&p.writeLimit, time.Time{}, nil)
	p.writable.Signal()
	p.forget()
}

// endReading ends the receiving side for the given reason, unless it has ended.
func (p *pipe) endReading(reason error) {
	if p.readErr == nil {
		p.readErr = reason
	}
	p.arrived = nil
	p.lane.drop()
	p.network.clock.setDeadline(&p.readTill, time.Time{}, nil)
	p.readable.Signal()
	p.forget()
}

// forget takes an ended pipe from its conns.
func (p *pipe) forget() {
	if p.writeErr != nil && p.readErr != nil {
		delete(p.from.pipes, p)
	}
}

func (p *pipe) setWriteDeadline(t time.Time) error {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.writeErr != nil {
		return p.writeErr
	}
	p.network.clock.setDeadline(&p.writeLimit, t, p.writable.Signal)
	return nil
}

func (p *pipe) setReadDeadline(t time.Time) error {
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	if p.readErr != nil {
		return p.readErr
	}
	p.network.clock.setDeadline(&p.readTill, t, p.readable.Signal)
	return nil
}
