package tcp

import (
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/transport"
)

const (
	// viewBytes is the size of the buffers for ReadFunc.
	viewBytes = 64 << 10

	// directBytes is the minimum length that Read reads directly into its argument.
	directBytes = 4 << 10
)

// A receiver is the reading end of a pipe.
type receiver struct {
	conn *conn
	id   uint32
	ps   *pipeSocket
	done chan struct{} // closed when the pipe has failed or was closed here

	ended chan struct{} // closed when the sender has announced the end of the pipe
	size  uint64        // length of the pipe in bytes; set before ended is closed

	stopped  atomic.Bool  // failure is set
	drained  atomic.Bool  // the socket has failed, and all its bytes were read
	waits    atomic.Bool  // the reader waits for the socket
	deadline atomic.Int64 // Unix time in nanoseconds; 0 is none

	// Used only by the reading goroutine:
	received uint64 // bytes of the pipe
	eof      bool   // all bytes were received
	tlsBuf   []byte // buffer in place of view, with TLS
	view     *[viewBytes]byte
	unread   []byte // part of view or tlsBuf
	readOnce func(fd uintptr) bool
	readN    int
	readErr  error

	// Used only by [Transport.monitor]:
	partial        uint64 // recordConn.partial at the last sample
	partialSamples int    // consecutive samples with this value

	poll    poller
	locator locator

	mu      sync.Mutex // guards failure
	failure error
}

var _ transport.Receiver = (*receiver)(nil)

// setSocket sets the socket of the pipe.
func (r *receiver) setSocket(ps *pipeSocket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ps = ps
	r.readOnce = r.newReadOnce()
	r.poll.init(r)
	r.locator.init()
	if r.failure != nil {
		ps.endRead()
	}
}

// wait calls f, which waits for the socket.
func (r *receiver) wait(f func()) {
	r.waits.Store(true)
	r.noteRecord()
	f()
	r.waits.Store(false)
}

// readSocket reads from the socket.
func (r *receiver) readSocket(p []byte) (n int, err error) {
	r.wait(func() { n, err = r.ps.socket.Read(p) })
	return n, err
}

// noteRecord wakes the monitor if the last TLS record is incomplete. The peer may have sent all of it, since a record with an altered
// length seems to be longer.
func (r *receiver) noteRecord() {
	if h := r.ps.records; h != nil && h.partial.Load() != 0 {
		r.conn.t.monitoring.note()
	}
}

// sampleRecord reports whether the reader waits for the rest of a TLS record. It ends the conn if none of it arrives for
// as long as a host may be silent. It counts samples, so that time in suspension of this process does not count.
func (r *receiver) sampleRecord() (waits bool) {
	var partial uint64
	if r.waits.Load() && r.ps.records != nil {
		partial = r.ps.records.partial.Load()
	}
	if partial == 0 || partial != r.partial {
		r.partial, r.partialSamples = partial, 0
		return partial != 0
	}
	r.partialSamples++
	if limit, ok := r.conn.t.hostTimeout(); ok && r.partialSamples >= int(limit/monitorInterval) {
		r.conn.end(gone(fmt.Errorf("the rest of a TLS record on pipe %d has not arrived for %v: bytes were lost or altered", r.id, limit)))
	}
	return true
}

// handleEnd handles the announced end of the pipe.
func (r *receiver) handleEnd(size uint64) error {
	select {
	case <-r.ended:
		return fmt.Errorf("the peer ended pipe %d twice", r.id)
	default:
		r.size = size
		close(r.ended)
		return nil
	}
}

// fail ends the pipe. It closes the socket unless retire does later.
func (r *receiver) fail(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure != nil {
		return
	}
	r.failure = reason
	r.stopped.Store(true)
	close(r.done)
	if r.ps != nil {
		r.ps.stopRead()
		if reason != errPipeClosed {
			r.ps.release()
		}
	}
}

func (r *receiver) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// stop ends the pipe and reports to the peer that it will not be read further.
func (r *receiver) stop() {
	if r.conn.removeReceiver(r) {
		r.fail(errPipeClosed)
		r.conn.retire(message{kind: msgDrop, pipe: r.id}, r.ps)
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

// checkReadable returns an error if buffered data must not be read.
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

// readBuffered reads from the buffer.
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

// readDirect reads into p without the buffer. With TLS the tls.Conn has its own.
func (r *receiver) readDirect(p []byte) (n int, err error) {
	if r.eof {
		return 0, io.EOF
	}
	r.poll.beginRead()
	if r.ps.tls == nil {
		n, err = r.readSocket(p)
	} else {
		n, err = r.decrypt(p)
	}
	if n > 0 {
		r.received += uint64(n)
		return n, nil // the next read returns the error
	}
	return 0, r.readError(err)
}

// fill waits until the buffer is not empty.
func (r *receiver) fill() error {
	if len(r.unread) > 0 {
		return r.checkReadable()
	}
	if r.eof {
		return io.EOF
	}
	r.poll.beginRead()
	var n int
	var err error
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

// fillTLS decrypts a record into tlsBuf, which is kept: the tls.Conn keeps a buffer of
// the same size too.
func (r *receiver) fillTLS() (n int, err error) {
	if r.tlsBuf == nil {
		r.tlsBuf = make([]byte, recordBytes)
	}
	n, err = r.decrypt(r.tlsBuf)
	r.unread = r.tlsBuf[:n]
	return n, err
}

// decrypt reads at least one byte from the tls.Conn.
func (r *receiver) decrypt(p []byte) (n int, err error) {
	for n == 0 && err == nil {
		n, err = r.ps.tls.Read(p)
	}
	r.poll.setTLSPending(0 < n && n < len(p), isTimeout(err))
	r.updateBuffered()
	return n, err
}

// releaseView returns an empty view buffer. It is called after every change of the
// buffer.
func (r *receiver) releaseView() {
	if len(r.unread) == 0 && r.view != nil {
		r.conn.t.views.Put(r.view)
		r.view = nil
	}
	r.updateBuffered()
}

// readError returns the error of a failed read.
func (r *receiver) readError(err error) error {
	if isTimeout(err) && !r.stopped.Load() {
		return os.ErrDeadlineExceeded
	}
	if reason := r.cause(err); reason != nil {
		return reason
	}
	if err := awaitCause(r.done, r.checkReadable); err != nil {
		return err
	}
	return r.err()
}

// cause returns the error of a failed read. It returns nil while the conn ends because the socket has failed.
func (r *receiver) cause(err error) error {
	if r.eof {
		return io.EOF
	}
	if r.stopped.Load() {
		return r.err()
	}
	select {
	case <-r.ended:
		if r.received == r.size {
			r.eof = true
			r.stop()
			return io.EOF
		}
		// The pipe was cut short.
	default:
	}
	if !r.drained.Swap(true) {
		r.conn.noteDrained()
		r.conn.endBroken(r.id, err)
	}
	return nil
}
