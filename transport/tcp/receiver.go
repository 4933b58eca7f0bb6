package tcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/transport"
)

const (
	// viewBytes is the size of the buffers that ReadFunc shows to its view.
	viewBytes = 64 << 10

	// directBytes is from when on a Read goes past the buffer.
	directBytes = 4 << 10
)

// A receiver is the reading end of a pipe.
type receiver struct {
	conn *conn
	id   uint32
	ps   *pipeSocket
	done chan struct{} // closed when the pipe has ended, save by its sender

	ended chan struct{} // closed when the sender has ended the pipe
	size  uint64        // how many bytes it had; set before announced is closed

	stopped  atomic.Bool  // over is set
	deadline atomic.Int64 // in nanoseconds of Unix time; 0 is none

	// Of the goroutine that reads.
	received uint64    // bytes taken from the socket
	eof      bool      // and they were all
	brokenAt time.Time // when the socket has ended without a word
	tlsBuf   []byte    // in place of view, where TLS is
	view     *[viewBytes]byte
	unread   []byte // what is still unread in view or own
	readOnce func(fd uintptr) bool
	readN    int
	readErr  error

	poll    poller
	locator locator

	receiverMigration
	mu      sync.Mutex // guards over, and next and parked of moves
	failure error
}

var _ transport.Receiver = (*receiver)(nil)

// bind gives the pipe its socket.
func (r *receiver) setSocket(ps *pipeSocket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ps = ps
	r.flow.Store(ps.newSubflow())
	if ps.records != nil {
		r.offset = ps.records.readBytes
	}
	r.readOnce = r.newReadOnce()
	r.poll.init(r)
	r.locator.init()
	if r.failure != nil {
		ps.endRead()
		return
	}
	r.arrangeLocked()
}

// announce notes the end of the pipe.
func (r *receiver) handleEnd(size uint64) error {
	select {
	case <-r.ended:
		return errors.New("it ends a pipe twice")
	default:
		r.size = size
		close(r.ended)
		return nil
	}
}

// shut ends the pipe, and reports whether it had not ended before.
func (r *receiver) fail(reason error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil {
		return false
	}
	r.failure = reason
	r.stopped.Store(true)
	close(r.done)
	if r.ps != nil {
		r.flow.Load().endRead()
	}
	for _, f := range append(r.next, r.parked...) {
		f.sock.Close()
	}
	r.next, r.parked = nil, nil
	return true
}

func (r *receiver) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// release ends the pipe and tells the peer that no more of it will be read.
func (r *receiver) stop() {
	if r.fail(errPipeClosed) && r.conn.removeReceiver(r) {
		r.conn.send(message{kind: msgDrop, pipe: r.id})
	}
}

func (r *receiver) Close() error {
	r.stop()
	return nil
}

func (r *receiver) SetReadDeadline(t time.Time) error {
	d := int64(0)
	if !t.IsZero() {
		d = max(t.UnixNano(), 1)
	}
	r.deadline.Store(d)
	r.poll.setDeadline(t)
	return nil
}

// ready says why what is in the buffer must not be read.
func (r *receiver) checkReadable() error {
	if r.stopped.Load() {
		return r.err()
	}
	if d := r.deadline.Load(); d != 0 && time.Now().UnixNano() >= d {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (r *receiver) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.unread) == 0 && (r.ps.tls != nil || len(p) >= directBytes) {
		return r.readDirect(p)
	}
	if err := r.fill(); err != nil {
		return 0, err
	}
	return r.readBuffered(p), nil
}

// unload takes bytes out of the buffer.
func (r *receiver) readBuffered(p []byte) int {
	n := copy(p, r.unread)
	r.unread = r.unread[n:]
	r.releaseView()
	return n
}

func (r *receiver) ReadFunc(n int, view func(p []byte)) (done int, err error) {
	defer r.releaseView()
	for done < n {
		if err := r.fill(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
		p := r.unread[:min(len(r.unread), n-done)]
		view(p)
		done += len(p)
		r.unread = r.unread[len(p):]
	}
	return done, nil
}

// direct reads into p, past the buffer. A tls.Conn has one of its own.
func (r *receiver) readDirect(p []byte) (n int, err error) {
	if r.eof {
		return 0, io.EOF
	}
	r.poll.beginRead()
	if r.ps.tls == nil {
		n, err = r.readFlow(p)
	} else {
		n, err = r.decrypt(p)
	}
	if n > 0 {
		r.received += uint64(n)
		return n, nil // what came with these bytes comes again without them
	}
	return 0, r.readError(err)
}

// fill waits until there is something in the buffer.
func (r *receiver) fill() error {
	if len(r.unread) > 0 {
		return r.checkReadable()
	}
	if r.eof {
		return io.EOF
	}
	r.poll.beginRead()
	n, err := 0, error(nil)
	if r.ps.tls == nil {
		n, err = r.fillView()
	} else {
		n, err = r.fillTLS()
	}
	if n > 0 {
		r.received += uint64(n)
		return nil
	}
	return r.readError(err)
}

// fillOwn decrypts a record into a buffer that is kept: the tls.Conn keeps one
// of the same size too.
func (r *receiver) fillTLS() (n int, err error) {
	if r.tlsBuf == nil {
		r.tlsBuf = make([]byte, recordBytes)
	}
	n, err = r.decrypt(r.tlsBuf)
	r.unread = r.tlsBuf[:n]
	return n, err
}

// putBack gives the buffer back if there is nothing in it. It is called at the
// end of whatever may have changed that.
func (r *receiver) releaseView() {
	if len(r.unread) == 0 && r.view != nil {
		r.conn.t.views.Put(r.view)
		r.view = nil
	}
	r.updateBuffered()
}

// explain says with transport's words why nothing more can be read from the
// socket. At its end the control socket has to say whether that was the end of
// the pipe as well, or of the Conn. What it says may have got lost on the way
// and be under way once more, so there is time for it.
func (r *receiver) readError(err error) error {
	if isTimeout(err) && !r.stopped.Load() {
		return os.ErrDeadlineExceeded
	}
	return r.waitCause(err, nil)
}

// awaitVerdict waits until verdict has a result. It returns nil before if another subflow
// follows that in, which attached reports.
func (r *receiver) waitCause(err error, attached <-chan struct{}) error {
	tick := time.NewTicker(causeInterval)
	defer tick.Stop()
	announced := r.ended
	for {
		if verdict := r.cause(err); verdict != nil {
			return verdict
		}
		select {
		case <-attached:
			if r.hasNext.Load() {
				return nil
			}
		case <-r.done:
		case <-announced:
			announced = nil // cut short, unless verdict sees it now
		case <-tick.C:
			if err := r.checkReadable(); isTimeout(err) {
				return err
			}
		}
	}
}

// verdict is explain, but nil as long as that would have to wait.
func (r *receiver) cause(err error) error {
	if r.eof {
		return io.EOF
	}
	if r.brokenAt.IsZero() {
		r.brokenAt = time.Now()
	}
	select {
	case <-r.done:
		return r.err()
	default:
	}
	select {
	case <-r.ended:
		if r.received == r.size {
			r.eof = true
			r.stop()
			return io.EOF
		}
		// Cut short: only the end of the Conn explains that.
	default:
	}
	if time.Since(r.brokenAt) > r.conn.t.causeTimeout {
		r.conn.end(gone(fmt.Errorf("the socket of a pipe broke: %w", err)))
		return r.err()
	}
	return nil
}
