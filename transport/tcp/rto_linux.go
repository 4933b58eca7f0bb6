package tcp

import (
	"time"

	"golang.org/x/sys/unix"
)

// Socket options of Linux 6.15 that package unix lacks.
const (
	optRTOMax   = 44 // TCP_RTO_MAX_MS
	optRTOMin   = 45 // TCP_RTO_MIN_US
	optDelayAck = 46 // TCP_DELACK_MAX_US
)

const (
	// rtoMin is the shortest retransmission timeout; the default of Linux is 200 ms. It
	// exceeds delayAckMax, so that the timer does not expire while the peer delays an
	// acknowledgement.
	rtoMin = 20 * time.Millisecond
	// delayAckMax is the longest delay of an acknowledgement; the default of Linux is 40
	// to 200 ms.
	delayAckMax = 10 * time.Millisecond
	// rtoMaxMin is the smallest value that the kernel accepts for the longest
	// retransmission timeout; the default is 120 s.
	rtoMaxMin = time.Second
	// retries is the approximate number of longest timeouts after which the kernel resets
	// a socket (net.ipv4.tcp_retries2).
	retries = 13
)

// rtoMax returns the longest retransmission timeout of a socket: the shortest with which
// the kernel does not reset the socket before idle. Zero means the default of the kernel.
func rtoMax(idle time.Duration) time.Duration {
	if idle < 0 {
		return 0
	}
	return max(rtoMaxMin, (idle/retries + time.Millisecond).Truncate(time.Millisecond))
}

// setTimeouts shortens the retransmission timeouts of a socket. Kernels without an option
// ignore it.
func (t *Transport) setTimeouts(sock socket) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		set := func(option int, value int64) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, int(value))
		}
		// With fewer than four packets in flight the first six timeouts do not double.
		// Older kernels have only this option.
		set(unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
		if most := rtoMax(t.cfg.IdleTimeout); most > 0 {
			set(optRTOMax, most.Milliseconds())
		}
		set(optRTOMin, rtoMin.Microseconds())
		set(optDelayAck, delayAckMax.Microseconds())
	})
}
