package shm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// newBell makes an eventfd. Ringing one costs half of what a byte on a socket
// does.
func newBell() (fd int, err error) {
	fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("eventfd: %w", err)
	}
	return fd, nil
}

// checkBell refuses what a peer has sent as its bell if it has a type of file:
// writing to a pipe or to a device could block, or do something.
func checkBell(fd int) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("fstat of the peer's bell: %w", err)
	}
	if stat.Mode&unix.S_IFMT != 0 {
		return fmt.Errorf("the bell of the peer is no eventfd, but has mode %#o", stat.Mode)
	}
	return nil
}

// A ringer is the bell of a peer. The guard keeps the file open. It is no
// os.File, for that would be told of its own ringing by the poller.
type ringer struct {
	guard
	fd int
}

func newRinger(fd int) *ringer {
	r := &ringer{fd: fd}
	r.release = func() { unix.Close(fd) }
	return r
}

// ring wakes the peer. The count has room for all that this side will ever add
// to it. Only a peer that tampers with its bell can make this fail or block,
// and that one, of the same user, could as well stop the process.
func (r *ringer) ring() {
	if r.enter() {
		one := [8]byte{1, 1, 1, 1, 1, 1, 1} // small in either byte order
		unix.Write(r.fd, one[:])
		r.leave()
	}
}

// hear calls rung each time the bell is rung, and once before. It returns when
// the bell is closed.
func hear(bell *os.File, rung func()) error {
	raw, err := bell.SyscallConn()
	if err != nil {
		return err
	}
	var count [8]byte
	return raw.Read(func(fd uintptr) bool {
		unix.Read(int(fd), count[:])
		rung()
		// Each write makes the poller report the file anew, so there is no
		// need to read it empty first.
		return false
	})
}
