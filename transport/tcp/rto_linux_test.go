package tcp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRetransmissionTimeouts checks that all sockets have short timeouts, as far as the
// kernel supports them, and that the kernel keeps a socket for IdleTimeout.
func TestRetransmissionTimeouts(t *testing.T) {
	for name, test := range map[string]struct {
		idle time.Duration
		most int // milliseconds
	}{
		"default": {0, 1154},
		"short":   {time.Second, 1000},
		"longer":  {60 * time.Second, 4616},
		"never":   {-1, 120_000},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{IdleTimeout: test.idle})
			dialed, accepted := connect(t, nodes[0], nodes[1])
			s, r := pipeBetween(t, dialed, accepted)
			for _, sock := range []socket{dialed.sock, accepted.sock, s.ps.socket, r.ps.socket} {
				wantOption(t, "TCP_THIN_LINEAR_TIMEOUTS", sock, unix.IPPROTO_TCP, unix.TCP_THIN_LINEAR_TIMEOUTS, 1)
				wantAbout(t, "TCP_RTO_MAX_MS", sock, optRTOMax, test.most, 10)
				wantAbout(t, "TCP_RTO_MIN_US", sock, optRTOMin, int(rtoMin.Microseconds()), 10_000)
				wantAbout(t, "TCP_DELACK_MAX_US", sock, optDelayAck, int(delayAckMax.Microseconds()), 10_000)
			}
		})
	}
}

// wantAbout checks the value of a TCP option of Linux 6.15, if the kernel has it. The
// kernel rounds it up to its ticks.
func wantAbout(t *testing.T, name string, sock socket, option, want, more int) {
	t.Helper()
	raw, err := sock.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); err == nil && (got < want || got > want+more) {
			t.Errorf("%s = %d, want %d, or at most %d more", name, got, want, more)
		}
	})
}
