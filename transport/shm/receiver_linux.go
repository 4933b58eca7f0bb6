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
	return r
}

// Capabilities implements [transport.Capable].
func (r *receiver) Capabilities() transport.Capabilities { return transport.Capabilities{Poller: r} }

// Read implements transport.Receiver.
func (r *receiver) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if !r.enter() {
		return 0, r.whyStopped()
	}
	defer r.leave()
	piece, err := r.next(len(p))
	if err != nil {
		return 0, err
	}
	n := copy(p, piece)
	r.done(n)
	return n, nil
}

// ReadFunc implements transport.Receiver.
func (r *receiver) ReadFunc(n int, view func(p []byte)) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	if !r.enter() {
		return 0, unexpected(r.whyStopped())
	}
	defer r.leave()
	read := 0
	for read < n {
		piece, err := r.next(n - read)
		if err != nil {
			return read, unexpected(err)
		}
		r.show(piece, view)
		read += len(piece)
	}
	return read, nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// show calls view with a piece and gives the piece back even if view panics,
// for the pipe would go on in the wrong place.
func (r *receiver) show(piece []byte, view func(p []byte)) {
	defer r.done(len(piece))
	view(piece)
}

// next waits for bytes to read and returns the first piece of them, at most
// limit. The caller gives it back with done.
func (r *receiver) next(limit int) ([]byte, error) {
	for {
		if err := r.whyStopped(); err != nil {
			return nil, err
		}
		piece, word, err := r.ring.peek(limit)
		switch {
		case err != nil:
			r.conn.broken(err)
		case len(piece) > 0:
			return piece, nil
		case word&closed != 0:
			r.stop(endOfPipe)
			r.finish()
		default:
			r.wait(r.ring.tail, word)
		}
	}
}

// TryRead implements transport.Poller.
func (r *receiver) TryRead(p []byte) (int, error) {
	if !r.enter() {
		return 0, r.whyStopped()
	}
	defer r.leave()
	piece, err := r.tryNext(len(p))
	if err != nil || len(piece) == 0 {
		return 0, err
	}
	n := copy(p, piece)
	r.done(n)
	return n, nil
}

// TryReadFunc implements transport.Poller.
func (r *receiver) TryReadFunc(n int, view func(p []byte)) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	if !r.enter() {
		return 0, unexpected(r.whyStopped())
	}
	defer r.leave()
	piece, err := r.tryNext(n)
	if err != nil || len(piece) == 0 {
		return 0, unexpected(err)
	}
	r.show(piece, view)
	return len(piece), nil
}

// tryNext is next, but returns nothing and no error where next would wait.
func (r *receiver) tryNext(limit int) ([]byte, error) {
	for {
		if err := r.whyStopped(); err != nil {
			return nil, err
		}
		piece, word, err := r.ring.peek(limit)
		switch {
		case err != nil:
			r.conn.broken(err)
		case len(piece) > 0:
			return piece, nil
		case word&closed != 0:
			r.stop(endOfPipe)
			r.finish()
		default:
			return nil, nil
		}
	}
}

// pending reports whether there is something to read, or nothing more to come.
// It may be called beside whoever reads.
func (r *receiver) pending() bool {
	return r.ring.tail.Load() != r.ring.head.Load() || r.stopped.Load() != 0
}

// WaitReadable implements transport.Poller.
func (r *receiver) WaitReadable() {
	if !r.enter() {
		return
	}
	defer r.leave()
	r.waitFor(r.pending)
}

// SetPolling implements transport.Poller. As long as a pipe is attended nobody is
// said to sleep. Afterwards either the writer sees that somebody does, or it
// is seen here what has been written.
func (r *receiver) SetPolling(attended bool) {
	if !r.enter() {
		return
	}
	defer r.leave()
	r.attended.Store(attended)
	switch {
	case attended:
		r.asleep.Store(0)
	case r.parked.Load():
		r.asleep.Swap(1) // no Store: see park
		if r.pending() {
			r.wake()
		}
	}
}

// done gives n bytes back to the writer.
func (r *receiver) done(n int) {
	r.ring.drop(n)
	if r.ring.lowWater() {
		r.alert()
	}
}

// SetReadDeadline implements transport.Receiver.
func (r *receiver) SetReadDeadline(t time.Time) error {
	return r.setDeadline(t)
}

// Close implements transport.Receiver.
func (r *receiver) Close() error {
	r.stop(closedHere)
	if r.enter() {
		r.ring.close()
		r.alert()
		r.leave()
	}
	r.finish()
	return nil
}
