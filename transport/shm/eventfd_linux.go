package shm

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newEventFD makes an eventfd. Signaling it takes half of the time of a byte on a socket.
func newEventFD() (fd int, err error) {
	fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	return fd, nil
}

// checkEventFD refuses a file of a peer that has a file type, unlike an eventfd: writing to a
// pipe or a device could block, or have side effects.
func checkEventFD(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("fstat of the peer's eventfd: %w", err)
	}
	if stat.Mode&unix.S_IFMT != 0 {
		return fmt.Errorf("the peer sent a file of mode %#o, want an eventfd", stat.Mode)
	}
	return nil
}

// An eventFDWriter signals the eventfd of a peer. It is not an os.File, since the poller of
// the runtime would report this side's own signals.
type eventFDWriter struct {
	refCount
	fd int
}

func newEventFDWriter(fd int) *eventFDWriter {
	w := &eventFDWriter{fd: fd}
	w.free = func() { unix.Close(fd) }
	return w
}

// signal wakes the peer. The counter of the eventfd has room for everything that this side
// will ever add. Only a peer that writes to its own eventfd can make the write fail or
// block; a process of the same user could as well stop this one.
func (w *eventFDWriter) signal() {
	if w.acquire() {
		var one [8]byte
		binary.NativeEndian.PutUint64(one[:], 1)
		_, _ = unix.Write(w.fd, one[:])
		w.unref()
	}
}

// eventsPerRead is the number of events after which watchEvents reads the eventfd, so that the counter does not become full
// even if the peer adds large numbers.
const eventsPerRead = 64

// watchEvents calls signaled once at the beginning, and after each signal. It returns when
// the eventfd is closed.
//
// The poller of the runtime is edge-triggered: it reports the file after each write, whether it has been read or not. It
// would also report that a read has made room in the counter. So a read costs a system call and an event, and is rare.
func watchEvents(f *os.File, signaled func()) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	events := 0
	return raw.Read(func(fd uintptr) bool {
		if events++; events%eventsPerRead == 0 {
			var count [8]byte
			_, _ = unix.Read(int(fd), count[:])
		}
		signaled()
		return false
	})
}
