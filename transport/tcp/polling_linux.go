package tcp

import (
	"cmp"
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

var _ transport.Capable = (*receiver)(nil)

// Capabilities implements [transport.Capable].
func (r *receiver) Capabilities() transport.Capabilities {
	return transport.Capabilities{Poller: r, CPULocator: r}
}

// suppressBytes is the number of unread bytes at which the kernel reports a socket with
// suppressed reports. It exceeds every frame. The kernel enlarges the receive buffer for it, so
// the window of the peer does not close.
const suppressBytes = 2 << 20

// A poller lets one goroutine read a pipe without blocking while another one waits for
// data.
//
// The netpoller of Go has the kernel report all data that arrives, which wakes a thread even for
// bytes that were read before it runs. That costs more than a short message. So while a
// pipe is polled, SO_RCVLOWAT (socket(7)) suppresses the reports of its socket until much
// data is unread. When this ends the kernel reports the data that has arrived.
type poller struct {
	readDeadline
	tlsIn  tlsInput
	wakeup chan struct{} // wakes sleep

	// Used only by the goroutine that reads or polls:
	readOnce       func(fd uintptr) // reads into p without blocking; sets n and err
	p              []byte
	n              int
	err            error
	applyLowat     func(fd uintptr) // sets SO_RCVLOWAT by suppressed
	cannotSuppress bool             // the kernel is too old
	received       bool             // data has arrived since the last SetPolling(true)
	tlsPending     bool             // the tls.Conn may have unread data

	// Used only by WaitReadable:
	peek   func(fd uintptr) bool // peeks once, and waits once
	peeked bool

	polling  atomic.Bool
	buffered atomic.Bool // data may be outside of the kernel
	sleeping atomic.Bool // WaitReadable waits for wakeup, as the pipe is polled
}

func (k *poller) init(r *receiver) {
	k.r = r
	k.wakeup = make(chan struct{}, 1)
	k.readOnce, k.peek, k.applyLowat = k.newReadOnce(), k.newPeek(), k.newApplyLowat()
	r.ps.raw.Control(func(fd uintptr) {
		// Linux 4.18 has added this option, and the reports of epoll for a lower SO_RCVLOWAT.
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ)
		k.cannotSuppress = err != nil
	})
	if r.ps.records != nil {
		k.tlsIn.poller = k
		k.tlsPending = true // the handshake may have read more than its own messages
		k.buffered.Store(true)
		r.ps.records.setSource(&k.tlsIn)
	}
}

// TryRead implements [transport.Poller].
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

// TryReadFunc implements [transport.Poller].
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

// tryFill reads at most n bytes into the buffer. Those that follow may be read directly
// to their destination.
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

// tryRead reads from the socket. It returns 0 and nil if there is no data.
func (k *poller) tryRead(p []byte) (int, error) {
	k.p, k.n, k.err = p, 0, nil
	err := k.r.ps.raw.Control(k.readOnce)
	k.p = nil
	return k.n, cmp.Or(err, k.err)
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

// noteReceived is called when TryRead has returned data. If the pipe is polled it
// suppresses reports, since more data is likely.
func (k *poller) noteReceived() {
	k.received = true
	if k.polling.Load() {
		k.suppress(true)
	}
}

// SetPolling implements [transport.Poller]. It makes a system call only if data arrives:
// if it did during the last polling it suppresses reports at once, and otherwise with the
// first data.
func (r *receiver) SetPolling(on bool) {
	k := &r.poll
	k.polling.Store(on)
	if on {
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

// suppress suppresses the reports of the kernel, or ends that.
func (k *poller) suppress(on bool) {
	if k.suppressed != on && !k.cannotSuppress {
		k.suppressed = on
		k.r.ps.raw.Control(k.applyLowat)
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

// WaitReadable implements [transport.Poller].
func (r *receiver) WaitReadable() {
	k := &r.poll
	for !r.stopped.Load() {
		if r.drained.Load() { // The socket is readable for ever.
			<-r.done
			return
		}
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

// sleep waits while the pipe is polled. Go's atomic operations are sequentially
// consistent, so either sleep sees that polling has ended or SetPolling sees that it
// sleeps.
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

// waitSocket waits until the socket is readable.
func (k *poller) waitSocket() {
	k.mu.Lock()
	k.waiting = true
	k.mu.Unlock()
	k.peeked = false
	k.r.wait(func() { _ = k.r.ps.raw.Read(k.peek) })

	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = false
	if k.interrupted.Load() {
		k.r.ps.SetReadDeadline(k.deadline)
		k.interrupted.Store(false)
	}
}

// newPeek returns a function that peeks into the socket, since the netpoller only reports
// data that arrives after it was asked. It checks buffered after the peek: either it sees
// bytes that were just taken from the socket, or updateBuffered sees that it waits.
func (k *poller) newPeek() func(fd uintptr) bool {
	var b [1]byte
	return func(fd uintptr) bool {
		if k.peeked {
			return true
		}
		k.peeked = true
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err != unix.EAGAIN && err != unix.EINTR || k.buffered.Load()
	}
}

// updateBuffered updates buffered, and wakes waitSocket if data is outside of the kernel.
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

// wakeWaiter interrupts waitSocket by a deadline.
func (k *poller) wakeWaiter() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.waiting && !k.interrupted.Load() {
		k.interrupted.Store(true)
		k.r.ps.SetReadDeadline(past())
	}
}

// beginRead is called before a read that may block. It waits for an interrupted
// waitSocket to return.
func (k *poller) beginRead() {
	k.suppress(false)
	for k.interrupted.Load() {
		runtime.Gosched()
	}
}
