package tcp

import (
	"cmp"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

var _ transport.Capable = (*receiver)(nil)

// Capabilities implements [transport.Capable].
func (r *receiver) Capabilities() transport.Capabilities {
	return transport.Capabilities{Poller: r, CPULocator: r}
}

// hushBytes is how much has to wait in a hushed socket before the kernel says
// so: more than any frame. The kernel makes room for it where it has to, so that
// no peer is held up by a socket that is full and quiet.
const suppressBytes = 2 << 20

// A polling is what a receiver has so that somebody can look for bytes, and
// somebody else can wait for them meanwhile.
//
// Go's poller has the kernel report every arrival, and a thread is woken for
// each, even if the bytes have been read before it runs. That costs more than
// a short message does. So an attended socket is hushed: the kernel reports
// nothing until there is much to read (SO_RCVLOWAT of socket(7)), and reports
// what has come by then when that is taken back.
type poller struct {
	r      *receiver
	tlsIn  tlsInput
	wakeup chan struct{} // wakes a goroutine in sleep

	// Of the goroutine that reads or attends.
	readOnce       func(fd uintptr) // reads into p without waiting, and sets n and err
	p              []byte
	n              int
	err            error
	applyLowat     func(fd uintptr) // tells the kernel about hushed
	suppressed     bool
	cannotSuppress bool // the kernel cannot hush a socket
	received       bool // something has come since the last SetPolling(true)
	tlsPending     bool // there may be something left in the tls.Conn

	// Of the goroutine that awaits the pipe.
	peek   func(fd uintptr) bool // looks once, and waits once
	peeked bool

	polling  atomic.Bool
	buffered atomic.Bool // there is something to read that the kernel knows nothing of
	sleeping atomic.Bool // who awaits an attended pipe waits for token

	mu          sync.Mutex
	waiting     bool        // who awaits the pipe waits for the socket
	interrupted atomic.Bool // watch is to return, and the deadline was changed for that
	deadline    time.Time   // the right deadline
}

func (k *poller) init(r *receiver) {
	k.r = r
	k.wakeup = make(chan struct{}, 1)
	k.readOnce, k.peek, k.applyLowat = k.newReadOnce(), k.newPeek(), k.newApplyLowat()
	k.cannotSuppress = !lowatSupported()
	if r.ps.records != nil {
		k.tlsIn.poller = k
		k.tlsPending = true // there may be more than the handshake in the tls.Conn
		k.buffered.Store(true)
		r.ps.records.setSource(&k.tlsIn)
	}
}

// TryRead implements transport.Poller.
func (r *receiver) TryRead(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	if r.eof {
		return 0, io.EOF
	}
	if err := r.checkReadable(); err != nil {
		return 0, err
	}
	switch {
	case len(r.unread) > 0:
		return r.readBuffered(p), nil
	case r.ps.tls == nil:
		n, err = r.poll.tryRead(p)
	default:
		n, err = r.tryDecrypt(p)
		r.updateBuffered()
	}
	switch {
	case n > 0:
		r.received += uint64(n)
		r.poll.noteReceived()
		return n, nil
	case err == nil:
		return 0, nil
	}
	return 0, r.cause(err)
}

// TryReadFunc implements transport.Poller.
func (r *receiver) TryReadFunc(n int, view func(p []byte)) (int, error) {
	if n <= 0 {
		return 0, nil
	}
	if len(r.unread) == 0 {
		if err := r.tryFill(n); err == io.EOF {
			return 0, io.ErrUnexpectedEOF
		} else if len(r.unread) == 0 {
			return 0, err
		}
	} else if err := r.checkReadable(); err != nil {
		return 0, err
	}
	defer r.releaseView()
	p := r.unread[:min(len(r.unread), n)]
	view(p)
	r.unread = r.unread[len(p):]
	return len(p), nil
}

// tryFill puts at most n bytes into the buffer, if there are any: what follows
// them may have a better place to go.
func (r *receiver) tryFill(n int) error {
	var buf []byte
	if r.ps.tls != nil {
		if r.tlsBuf == nil {
			r.tlsBuf = make([]byte, recordBytes)
		}
		buf = r.tlsBuf
	} else {
		if r.view == nil {
			r.view = r.conn.t.views.Get().(*[viewBytes]byte)
		}
		buf = r.view[:min(n, viewBytes)]
	}
	n, err := r.TryRead(buf)
	if r.unread = buf[:n]; n == 0 {
		r.releaseView()
	}
	return err
}

// tryRead reads from the socket. It returns 0 and no error if there is nothing.
func (k *poller) tryRead(p []byte) (int, error) {
	k.p, k.n, k.err = p[:min(len(p), k.r.readLimit())], 0, nil
	err := k.r.flow.Load().raw.Control(k.readOnce)
	k.p = nil
	n, err := k.r.countRead(p[:k.n]), cmp.Or(err, k.err)
	if n > 0 || err == nil || k.r.flowEnded(err) {
		return n, nil // The next call may read from another subflow.
	}
	return 0, k.r.cause(err)
}

func (k *poller) newReadOnce() func(fd uintptr) {
	return func(fd uintptr) {
		n, err := syscall.Read(int(fd), k.p)
		for err == syscall.EINTR {
			n, err = syscall.Read(int(fd), k.p)
		}
		k.n, k.err = max(n, 0), nil
		switch {
		case n == 0 && err == nil:
			k.err = io.EOF
		case err != nil && err != syscall.EAGAIN:
			k.err = os.NewSyscallError("read", err)
		}
	}
}

// taken is called when TryRead has found something. More is likely to come, so
// the socket of an attended pipe is hushed.
func (k *poller) noteReceived() {
	k.received = true
	if k.polling.Load() {
		k.suppress(true)
	}
}

// SetPolling implements transport.Poller. It costs a system call only on pipes on
// which something comes: where it did the last time, the socket is hushed at
// once, and otherwise as soon as something has come.
func (r *receiver) SetPolling(attended bool) {
	k := &r.poll
	k.polling.Store(attended)
	if attended {
		if k.received {
			k.suppress(true)
		}
		k.received = false
		return
	}
	k.suppress(false)
	if k.sleeping.Load() {
		select {
		case k.wakeup <- struct{}{}:
		default:
		}
	}
	if k.buffered.Load() {
		k.wakeWaiter()
	}
}

// hush has the kernel report no more arrivals, or report them again.
func (k *poller) suppress(on bool) {
	if k.suppressed != on && !k.cannotSuppress {
		k.suppressed = on
		k.r.flow.Load().raw.Control(k.applyLowat)
	}
}

func (k *poller) newApplyLowat() func(fd uintptr) {
	return func(fd uintptr) {
		n := 1
		if k.suppressed {
			n = suppressBytes
		}
		unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n)
	}
}

// WaitReadable implements transport.Poller.
func (r *receiver) WaitReadable() {
	k := &r.poll
	for !r.stopped.Load() {
		if k.polling.Load() {
			k.sleep()
			continue
		}
		k.waitSocket()
		if !k.polling.Load() {
			return
		}
	}
}

// sleep waits as long as the pipe is attended. Either it sees that this is over
// or SetPolling sees that it sleeps, as atomic operations of Go are in one order for
// all.
func (k *poller) sleep() {
	k.sleeping.Store(true)
	defer k.sleeping.Store(false)
	for k.polling.Load() {
		select {
		case <-k.wakeup:
		case <-k.r.done:
			return
		}
	}
}

// watch waits for the socket.
func (k *poller) waitSocket() {
	k.mu.Lock()
	k.waiting = true
	in := k.r.flow.Load()
	k.mu.Unlock()
	k.peeked = false
	in.raw.Read(k.peek)

	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = false
	if k.interrupted.Load() {
		k.r.flow.Load().setReadDeadline(k.deadline) // The pipe may have moved meanwhile.
		k.interrupted.Store(false)
	}
}

// interrupt makes a read or a watch that waits return.
func (k *poller) interrupt() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting {
		k.interrupted.Store(true)
	}
	k.r.flow.Load().setReadDeadline(past())
}

// restore sets the deadline of the pipe again. A watch that was called does so itself.
func (k *poller) restoreDeadline() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.interrupted.Load() {
		k.r.flow.Load().setReadDeadline(k.deadline)
	}
}

// swap has the pipe read from another subflow. That one is not hushed, and a watch of
// the one before has been interrupted.
func (k *poller) setFlow(f *subflow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.r.flow.Store(f)
	k.suppressed = false
	f.setReadDeadline(k.deadline)
}

// peeker looks into the socket, for Go's poller only says what has come since
// it has been asked. It looks at buffered afterwards: bytes that have just been
// taken from the socket are seen there, or note sees that somebody is inside. If
// another socket follows, only the next read finds out where the next bytes are.
func (k *poller) newPeek() func(fd uintptr) bool {
	var b [1]byte
	return func(fd uintptr) bool {
		if k.peeked {
			return true
		}
		k.peeked = true
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR || k.buffered.Load() || k.r.hasNext.Load()
	}
}

// note notes whether there may be something to read that the kernel knows
// nothing of. If somebody has begun to wait for the kernel meanwhile, he is
// called.
func (r *receiver) updateBuffered() {
	k := &r.poll
	some := len(r.unread) > 0 || k.tlsPending
	if k.buffered.Load() == some {
		return
	}
	k.buffered.Store(some)
	if some && !k.polling.Load() {
		k.wakeWaiter()
	}
}

// call makes watch return, by a deadline.
func (k *poller) wakeWaiter() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting && !k.interrupted.Load() {
		k.interrupted.Store(true)
		k.r.flow.Load().setReadDeadline(past())
	}
}

// limit sets the deadline of the socket. If another one follows, it interrupts a read as
// interrupt does, which the read may not have noticed yet; turn restores the deadline.
func (k *poller) setDeadline(t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deadline = t
	if k.r.hasNext.Load() {
		t = past()
	}
	if !k.interrupted.Load() {
		k.r.flow.Load().setReadDeadline(t) // fails only if the pipe has ended
	}
}

// rest is called before a read that may wait. Whoever awaits the pipe and was
// called is about to come out.
func (k *poller) beginRead() {
	k.suppress(false)
	for k.interrupted.Load() {
		runtime.Gosched()
	}
}

// hushes reports whether the kernel can hush a socket: since Linux 4.18 it
// keeps quiet, and says what it has kept to itself.
func lowatSupported() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(name.Release[:]), 4, 18)
}

// atLeast reports whether a release of Linux, "6.1.0-13-amd64", is not older
// than the given one.
func atLeast(release string, major, minor int) bool {
	a, rest, _ := strings.Cut(release, ".")
	b, _, _ := strings.Cut(rest, ".")
	b = b[:len(b)-len(strings.TrimLeft(b, "0123456789"))]
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x > major || x == major && y >= minor
}
