package quic

import (
	"net"

	"golang.org/x/sys/unix"
)

const raiseBuffers = "sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000"

// forceBuffers sets the buffers beyond the limit of the system, which needs root, and
// returns their sizes.
func forceBuffers(udp *net.UDPConn, bytes int) (read, write int, err error) {
	err = control(udp, func(fd int) (err error) {
		if read, err = forceBuffer(fd, unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, bytes); err == nil {
			write, err = forceBuffer(fd, unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, bytes)
		}
		return err
	})
	return read, write, err
}

func forceBuffer(fd, get, force, bytes int) (int, error) {
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, get)
	// The kernel reports twice the requested size, for its own overhead.
	if err != nil || size/2 >= bytes {
		return size / 2, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes); err != nil {
		return size / 2, nil //nolint:nilerr // without the privilege the size stays
	}
	size, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, get)
	return size / 2, err
}
