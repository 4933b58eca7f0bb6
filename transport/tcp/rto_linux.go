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
	// rtoMin is the shortest retransmission timeout; Linux uses 200 ms. It must be
	// longer than delayAckMax, or the timer runs out while the peer delays its
	// acknowledgement.
	rtoMin = 20 * time.Millisecond
	// delayAckMax is the longest delay of an acknowledgement; Linux uses 40 to 200 ms.
	delayAckMax = 10 * time.Millisecond
	// rtoMaxMin is the least that the kernel takes as the longest retransmission
	// timeout; its own is 120 s.
	rtoMaxMin = time.Second
	// retries is roughly the number of longest timeouts after which the kernel gives a
	// socket up (net.ipv4.tcp_retries2).
	retries = 13
)

// rtoMax is the longest retransmission timeout of a socket, however often it has been
// doubled: as short as it can be where the kernel must not give the socket up before
// idle is over. Zero leaves it to the kernel.
func rtoMax(idle time.Duration) time.Duration {
	if idle < 0 {
		return 0
	}
	return max(rtoMaxMin, (idle/retries + time.Millisecond).Truncate(time.Millisecond))
}

// tune shortens the waits for retransmissions on a socket. A kernel that lacks an
// option refuses it, and the socket works without it.
func (t *Transport) setTimeouts(sock socket) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		set := func(option int, value int64) {
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, int(value))
		}
		// With fewer than four packets in flight the first six timeouts are not
		// doubled. Older kernels have no other of these options.
		set(unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
		if most := rtoMax(t.cfg.IdleTimeout); most > 0 {
			set(optRTOMax, most.Milliseconds())
		}
		set(optRTOMin, rtoMin.Microseconds())
		set(optDelayAck, delayAckMax.Microseconds())
	})
}
