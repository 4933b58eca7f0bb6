package shm

import (
	"io"
	"time"

	"github.com/nexar-go/nexar/transport"
)

var (
	_ transport.Receiver = (*receiver)(nil)
	_ transport.Capable  = (*receiver)(nil)
)

// A receiver is the reading end of a pipe.
type receiver struct {
	end
	ring ringReader
}

func newReceiver(c *conn, memory []byte) *receiver {
	r := &receiver{ring: ringReader{ring: newRing(memory)}}
	r.init(c, &r.ring.ring, r.ring.readerAsleep, r.ring.writerAsleep)
	r.unread = r.hasUnread
	return r
}

// Capabilities implements [transport.Capable].
func (r *receiver) Capabilities() transport.Capabilities { return transport.Capabilities{Poller: r} }

// Read implements transport.Receiver.
func (r *receiver) Read(p []byte) (int, error) { return r.read(p, true) }

// TryRead implements transport.Poller.
func (r *receiver) TryRead(p []byte) (int, error) { return r.read(p, false) }

func (r *receiver) read(p []byte, block bool) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !r.acquire() {
		return 0, r.whyStopped()
	}
	defer r.unref()
	piece, err := r.next(len(p), block)
	if err != nil || len(piece) == 0 {
		return 0, err
	}
	n := copy(p, piece)
	r.consume(n)
	return n, nil
}

// ReadFunc implements transport.Receiver.
func (r *receiver) ReadFunc(n int, view func(p []byte)) (read int, err error) {
	for read < n && err == nil {
		var k int
		k, err = r.view(n-read, view, true)
		read += k
	}
	return read, err
}

// TryReadFunc implements transport.Poller.
func (r *receiver) TryReadFunc(n int, view func(p []byte)) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	return r.view(n, view, false)
}

// view calls view with the next piece, of at most n bytes. It consumes the piece even if view
// panics, since the next read would begin at the wrong byte.
func (r *receiver) view(n int, view func(p []byte), block bool) (int, error) {
	if !r.acquire() {
		return 0, unexpected(r.whyStopped())
	}
	defer r.unref()
	piece, err := r.next(n, block)
	if err != nil || len(piece) == 0 {
		return 0, unexpected(err)
	}
	defer r.consume(len(piece))
	view(piece)
	return len(piece), nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next returns the next piece in the ring, at most limit bytes of it. The caller consumes it.
// If the ring is empty, next waits or, unless block is set, returns nothing.
func (r *receiver) next(limit int, block bool) ([]byte, error) {
	for {
		if err := r.whyStopped(); err != nil {
			return nil, err
		}
		piece, word, err := r.ring.peek(limit)
		switch {
		case err != nil:
			r.conn.protocolError(err)
		case len(piece) > 0:
			return piece, nil
		case word&closed != 0:
			r.stop(endOfPipe)
			r.finish()
		case block:
			r.wait(r.ring.tail, word)
		default:
			return nil, nil
		}
	}
}

// readable reports whether a read returns immediately. It may run concurrently with reads.
func (r *receiver) readable() bool {
	return r.ring.tail.Load() != r.ring.head.Load() || r.stopped.Load() != 0
}

// hasUnread may run concurrently with reads.
func (r *receiver) hasUnread() bool {
	return r.stopped.Load()&^deadlinePassed == 0 && r.ring.tail.Load()&^closed != r.ring.head.Load()
}

// WaitReadable implements transport.Poller.
func (r *receiver) WaitReadable() {
	if !r.acquire() {
		return
	}
	defer r.unref()
	r.waitFor(r.readable)
}

// SetPolling implements transport.Poller. While a goroutine polls, the flag of a sleeping
// reader is not set. Afterwards either the writer sees the flag, or this side sees the new
// bytes.
func (r *receiver) SetPolling(polling bool) {
	if !r.acquire() {
		return
	}
	defer r.unref()
	r.polling.Store(polling)
	switch {
	case polling:
		r.asleep.Store(0)
	case r.parked.Load():
		r.asleep.Swap(1) // not Store: see park
		if r.readable() {
			r.wake()
		}
	}
}

// consume returns n bytes of the ring to the writer.
func (r *receiver) consume(n int) {
	r.ring.drop(n)
	if r.ring.lowWater() {
		r.wakePeer()
	}
}

// SetReadDeadline implements transport.Receiver.
func (r *receiver) SetReadDeadline(t time.Time) error {
	return r.setDeadline(t)
}

// Close implements transport.Receiver.
func (r *receiver) Close() error {
	r.stop(closedHere)
	if r.acquire() {
		r.ring.close()
		r.wakePeer()
		r.unref()
	}
	r.finish()
	return nil
}
