package quic

import "golang.org/x/sys/unix"

// segments reports whether the system supports UDP_SEGMENT.
func segments(fd uintptr) bool {
	_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	return err == nil
}
