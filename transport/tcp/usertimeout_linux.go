package tcp

import (
	"syscall"
	"time"
)

// setUserTimeout makes the kernel end a connection when sent data was not acknowledged
// for limit (RFC 5482).
func setUserTimeout(sock socket, limit time.Duration) {
	const userTimeout = 18 // TCP_USER_TIMEOUT of linux/tcp.h, in milliseconds
	raw, err := sock.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, userTimeout, int(limit.Milliseconds()))
	})
}
