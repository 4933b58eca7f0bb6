package tcp

import (
	"syscall"
	"testing"
	"time"
)

const optUserTimeout = 18 // TCP_USER_TIMEOUT of linux/tcp.h

// TestKeepAlive checks the keepalive options of the control socket, and that no socket has a user timeout: with one, the
// kernel can end a socket when the network interface is down for a fraction of a second.
func TestKeepAlive(t *testing.T) {
	for name, test := range map[string]struct {
		limit                       time.Duration
		keep, idle, interval, count int
	}{
		"default": {0, 1, 5, 1, 10},
		"short":   {time.Second, 1, 5, 1, 10},
		"longer":  {30 * time.Second, 1, 10, 2, 10},
		"never":   {-1, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{IdleTimeout: test.limit, Plain: true})
			dialed, accepted := connect(t, nodes[0], nodes[1])
			for _, sock := range []socket{dialed.sock, accepted.sock} {
				wantOption(t, "SO_KEEPALIVE", sock, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, test.keep)
				wantOption(t, "TCP_USER_TIMEOUT", sock, syscall.IPPROTO_TCP, optUserTimeout, 0)
				if test.keep == 1 {
					wantOption(t, "TCP_KEEPIDLE", sock, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, test.idle)
					wantOption(t, "TCP_KEEPINTVL", sock, syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, test.interval)
					wantOption(t, "TCP_KEEPCNT", sock, syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, test.count)
				}
			}
			s, r := pipeBetween(t, dialed, accepted)
			for _, ps := range []*pipeSocket{s.ps, r.ps} {
				wantOption(t, "TCP_USER_TIMEOUT of a pipe", ps.socket, syscall.IPPROTO_TCP, optUserTimeout, 0)
				wantOption(t, "TCP_NODELAY of a pipe", ps.socket, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
			}
		})
	}
}

func wantOption(t *testing.T, name string, sock socket, level, option, want int) {
	t.Helper()
	raw, err := sock.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		got, err := syscall.GetsockoptInt(int(fd), level, option)
		if err != nil || got != want {
			t.Errorf("%s = %d, %v, want %d", name, got, err, want)
		}
	})
}
