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
	// rtoMax is the longest retransmission timeout, however often it has been doubled.
	// The kernel accepts no less; without the option it is 120 s.
	rtoMax = time.Second
)

// tune shortens the waits for retransmissions on a socket. A kernel that lacks an
// option refuses it, and the socket works without it.
func tune(sock socket) {
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
		set(optRTOMax, rtoMax.Milliseconds())
		set(optRTOMin, rtoMin.Microseconds())
		set(optDelayAck, delayAckMax.Microseconds())
	})
}
