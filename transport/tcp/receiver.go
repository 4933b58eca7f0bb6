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
	ch   *channel
	gone chan struct{} // closed when the pipe has ended, save by its sender

	announced chan struct{} // closed when the sender has ended the pipe
	size      uint64        // how many bytes it had; set before announced is closed

	stopped  atomic.Bool  // over is set
	deadline atomic.Int64 // in nanoseconds of Unix time; 0 is none

	// Of the goroutine that reads.
	got      uint64    // bytes taken from the socket
	finished bool      // and they were all
	broke    time.Time // when the socket has ended without a word
	own      []byte    // in place of view, where TLS is
	view     *[viewBytes]byte
	has      []byte // what is still unread in view or own
	readOnce func(fd uintptr) bool
	readN    int
	readErr  error

	poll    polling
	locator locator

	moves
	mu   sync.Mutex // guards over, and next and parked of moves
	over error
}

var _ transport.Receiver = (*receiver)(nil)

// bind gives the pipe its socket.
func (r *receiver) bind(ch *channel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ch = ch
	r.in.Store(ch.half())
	if ch.held != nil {
		r.read = ch.held.taken
	}
	r.readOnce = r.reader()
	r.poll.init(r)
	r.locator.init()
	if r.over != nil {
		ch.endRead()
		return
	}
	r.arrange()
}

// announce notes the end of the pipe.
func (r *receiver) announce(size uint64) error {
	select {
	case <-r.announced:
		return errors.New("it ends a pipe twice")
	default:
		r.size = size
		close(r.announced)
		return nil
	}
}

// shut ends the pipe, and reports whether it had not ended before.
func (r *receiver) shut(reason error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over != nil {
		return false
	}
	r.over = reason
	r.stopped.Store(true)
	close(r.gone)
	if r.ch != nil {
		r.in.Load().endRead()
	}
	for _, f := range append(r.next, r.parked...) {
		f.sock.Close()
	}
	r.next, r.parked = nil, nil
	return true
}

func (r *receiver) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// release ends the pipe and tells the peer that no more of it will be read.
func (r *receiver) release() {
	if r.shut(errPipeClosed) && r.conn.removeReceiver(r) {
		r.conn.say(message{kind: msgDrop, pipe: r.id})
	}
}

func (r *receiver) Close() error {
	r.release()
	return nil
}

func (r *receiver) SetReadDeadline(t time.Time) error {
	d := int64(0)
	if !t.IsZero() {
		d = max(t.UnixNano(), 1)
	}
	r.deadline.Store(d)
	r.poll.limit(t)
	return nil
}

// ready says why what is in the buffer must not be read.
func (r *receiver) ready() error {
	if r.stopped.Load() {
		return r.reason()
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
	if len(r.has) == 0 && (r.ch.tls != nil || len(p) >= directBytes) {
		return r.direct(p)
	}
	if err := r.fill(); err != nil {
		return 0, err
	}
	return r.unload(p), nil
}

// unload takes bytes out of the buffer.
func (r *receiver) unload(p []byte) int {
	n := copy(p, r.has)
	r.has = r.has[n:]
	r.putBack()
	return n
}

func (r *receiver) ReadFunc(n int, view func(p []byte)) (done int, err error) {
	defer r.putBack()
	for done < n {
		if err := r.fill(); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return done, err
		}
		p := r.has[:min(len(r.has), n-done)]
		view(p)
		done += len(p)
		r.has = r.has[len(p):]
	}
	return done, nil
}

// direct reads into p, past the buffer. A tls.Conn has one of its own.
func (r *receiver) direct(p []byte) (n int, err error) {
	if r.finished {
		return 0, io.EOF
	}
	r.poll.rest()
	if r.ch.tls == nil {
		n, err = r.readFlow(p)
	} else {
		n, err = r.decrypt(p)
	}
	if n > 0 {
		r.got += uint64(n)
		return n, nil // what came with these bytes comes again without them
	}
	return 0, r.explain(err)
}

// fill waits until there is something in the buffer.
func (r *receiver) fill() error {
	if len(r.has) > 0 {
		return r.ready()
	}
	if r.finished {
		return io.EOF
	}
	r.poll.rest()
	n, err := 0, error(nil)
	if r.ch.tls == nil {
		n, err = r.fillView()
	} else {
		n, err = r.fillOwn()
	}
	if n > 0 {
		r.got += uint64(n)
		return nil
	}
	return r.explain(err)
}

// fillOwn decrypts a record into a buffer that is kept: the tls.Conn keeps one
// of the same size too.
func (r *receiver) fillOwn() (n int, err error) {
	if r.own == nil {
		r.own = make([]byte, recordBytes)
	}
	n, err = r.decrypt(r.own)
	r.has = r.own[:n]
	return n, err
}

// putBack gives the buffer back if there is nothing in it. It is called at the
// end of whatever may have changed that.
func (r *receiver) putBack() {
	if len(r.has) == 0 && r.view != nil {
		r.conn.t.views.Put(r.view)
		r.view = nil
	}
	r.note()
}

// explain says with transport's words why nothing more can be read from the
// socket. At its end the control socket has to say whether that was the end of
// the pipe as well, or of the Conn. What it says may have got lost on the way
// and be under way once more, so there is time for it.
func (r *receiver) explain(err error) error {
	if isTimeout(err) && !r.stopped.Load() {
		return os.ErrDeadlineExceeded
	}
	return r.awaitVerdict(err, nil)
}

// awaitVerdict waits until verdict has a result. It returns nil before if another subflow
// follows that in, which attached reports.
func (r *receiver) awaitVerdict(err error, attached <-chan struct{}) error {
	tick := time.NewTicker(verdictTick)
	defer tick.Stop()
	announced := r.announced
	for {
		if verdict := r.verdict(err); verdict != nil {
			return verdict
		}
		select {
		case <-attached:
			if r.moving.Load() {
				return nil
			}
		case <-r.gone:
		case <-announced:
			announced = nil // cut short, unless verdict sees it now
		case <-tick.C:
			if err := r.ready(); isTimeout(err) {
				return err
			}
		}
	}
}

// verdict is explain, but nil as long as that would have to wait.
func (r *receiver) verdict(err error) error {
	if r.finished {
		return io.EOF
	}
	if r.broke.IsZero() {
		r.broke = time.Now()
	}
	select {
	case <-r.gone:
		return r.reason()
	default:
	}
	select {
	case <-r.announced:
		if r.got == r.size {
			r.finished = true
			r.release()
			return io.EOF
		}
		// Cut short: only the end of the Conn explains that.
	default:
	}
	if time.Since(r.broke) > r.conn.t.verdictMax {
		r.conn.end(gone(fmt.Errorf("the socket of a pipe broke: %w", err)))
		return r.reason()
	}
	return nil
}
