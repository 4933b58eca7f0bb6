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
	ring   ringReader
	streak int  // see streakMin
	held   bool // SetPolling(true) has acquired the memory for the reads that follow
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

// streakMin is the number of reads in a row, with bytes, from which on a read takes more than one short record. To look for one that is
// not there takes a cache line from the peer.
const streakMin = 3

func (r *receiver) read(p []byte, block bool) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !r.held {
		if !r.acquire() {
			return 0, r.whyStopped()
		}
		defer r.unref()
	}
	piece, err := r.next(len(p), block)
	if len(piece) == 0 {
		r.streak = 0
		return 0, err
	}
	wake := false
	for r.streak++; len(piece) > 0; {
		k := copy(p[n:], piece)
		n += k
		wake = r.ring.drop(k) || wake
		if n == len(p) || k < lineBytes && r.streak < streakMin {
			break
		}
		if piece, _ = r.ring.peek(len(p) - n); len(piece) == 0 { // The next read reports an error.
			r.streak = 0
		}
	}
	if wake {
		r.wakePeer()
	}
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
	if !r.held {
		if !r.acquire() {
			return 0, unexpected(r.whyStopped())
		}
		defer r.unref()
	}
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
		piece, err := r.ring.peek(limit)
		switch {
		case err == io.EOF:
			r.stop(endOfPipe)
			r.finish()
		case err != nil:
			r.conn.protocolError(err)
		case len(piece) > 0 || !block:
			return piece, nil
		default:
			// Unlike readable, this does not read the position in the ring, which the peer may have changed.
			r.waitFor(func() bool { return r.ring.length(r.ring.read).Load() != 0 || r.stopped.Load() != 0 })
		}
	}
}

// readable reports whether a read returns immediately. It may run concurrently with reads.
func (r *receiver) readable() bool {
	return r.ring.length(r.ring.head.Load()).Load() != 0 || r.stopped.Load() != 0
}

// hasUnread may run concurrently with reads.
func (r *receiver) hasUnread() bool {
	return r.stopped.Load()&^deadlinePassed == 0 && r.ring.length(r.ring.head.Load()).Load()&^closed != 0
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
	if !r.held && !r.acquire() {
		return
	}
	r.held = polling
	r.polling.Store(polling)
	if polling {
		r.asleep.Store(0)
		return
	}
	defer r.unref()
	if r.parked.Load() {
		r.asleep.Swap(1) // not Store: see park
		if r.readable() {
			r.wake()
		}
	}
}

// consume returns n bytes of the ring to the writer.
func (r *receiver) consume(n int) {
	if r.ring.drop(n) {
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
		r.ring.readerLeft.Swap(1) // not Store: see park
		r.wakePeer()
		r.unref()
	}
	r.finish()
	return nil
}
