package tcp

import (
	"context"
	"syscall"

	"golang.org/x/sys/unix"
)

// bindLate lets the kernel choose the port of a socket that is bound to an address when it connects.
// Otherwise the kernel searches at bind for a port that no other socket uses, even for another peer. With
// many nodes on a host that search takes most of the processor time. An error is ignored: dialing
// is slower then.
func bindLate(_ context.Context, _, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	})
}
