//go:build unix && !linux

package quic

import (
	"net"

	"golang.org/x/sys/unix"
)

const raiseBuffers = "sysctl -w kern.ipc.maxsockbuf=8441037"

// forceBuffers lowers the size until the system accepts it: above the limit it sets
// nothing. It returns the sizes.
func forceBuffers(udp *net.UDPConn, bytes int) (read, write int, err error) {
	err = control(udp, func(fd int) (err error) {
		if read, err = largestBuffer(fd, unix.SO_RCVBUF, bytes); err == nil {
			write, err = largestBuffer(fd, unix.SO_SNDBUF, bytes)
		}
		return err
	})
	return read, write, err
}

func largestBuffer(fd, option, bytes int) (int, error) {
	before, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
	if err != nil {
		return 0, err
	}
	for size := bytes; size > before; size -= size / 4 {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, size) == nil {
			break
		}
	}
	return unix.GetsockoptInt(fd, unix.SOL_SOCKET, option)
}
