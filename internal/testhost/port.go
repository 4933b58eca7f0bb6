package testhost

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Operating systems give sockets without a fixed port one from 32768 on, or a higher one.
const portMin, portEnd = 10_000, 32_768

// FreePort returns an address on loopback with a port that is free for UDP and TCP. The system gives it to no
// socket without a fixed port, so that a process that ends can be restarted at it.
func FreePort(t testing.TB) string {
	t.Helper()
	var last error
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", portMin+rand.N(portEnd-portMin))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			last = err
			continue
		}
		c, err := net.ListenPacket("udp", addr)
		l.Close()
		if err == nil {
			c.Close()
			return addr
		}
		last = err
	}
	t.Fatalf("no port from %d to %d is free for both UDP and TCP: %v", portMin, portEnd-1, last)
	return ""
}
