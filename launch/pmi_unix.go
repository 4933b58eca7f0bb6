//go:build linux || darwin || freebsd

package launch

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// inherited returns a descriptor as a file that supports deadlines, and that programs started by this process do not inherit. It
// returns an error, and changes nothing, if the descriptor was not inherited or is no connection.
func inherited(fd int) (*os.File, error) {
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	if errno != 0 {
		return nil, fmt.Errorf("the descriptor is not open: %w", errno)
	}
	// Go opens all its descriptors with this flag.
	if flags&syscall.FD_CLOEXEC != 0 {
		return nil, errors.New("this process has opened the descriptor itself")
	}
	kind, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE)
	if err != nil {
		return nil, fmt.Errorf("the descriptor is no socket: %w", err)
	}
	if kind != syscall.SOCK_STREAM {
		return nil, fmt.Errorf("the descriptor is a socket of the type %d, not a stream", kind)
	}
	if _, err := syscall.Getpeername(fd); err != nil {
		return nil, fmt.Errorf("the descriptor is a socket without a connection: %w", err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("the descriptor does not become non-blocking: %w", err)
	}
	return os.NewFile(uintptr(fd), "PMI_FD"), nil
}
