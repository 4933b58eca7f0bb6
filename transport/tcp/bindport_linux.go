package tcp

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindLate lets the kernel choose the port of a socket that is bound to an address when it connects.
// Otherwise the kernel looks at bind for a port that no other socket has, whatever its peer,
// which takes most of the processor time when many nodes of a host connect. An error is ignored: it only
// makes dialing slower.
func bindLate(_ context.Context, _, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}
