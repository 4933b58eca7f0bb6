package quic

import "golang.org/x/sys/unix"

// segments reports whether the system supports UDP_SEGMENT.
func segments(fd int) bool {
	_, err := unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	return err == nil
}
