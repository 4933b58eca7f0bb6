package testhost

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// Operating systems give sockets without a fixed port one from 32768 on, or a higher one. Linux can be told a lower bound.
const portMin, portEnd = 10_000, 32_768

// FreePort returns an address on loopback with a port that is free for UDP and TCP. The system gives it to no
// socket without a fixed port, and no other call of FreePort, in any process, returns it until t has ended.
//
// It returns odd ports. A listener at the even port below stands for the reservation, so that the port itself stays free.
func FreePort(t testing.TB) string {
	t.Helper()
	end := portEndOf("/proc/sys/net/ipv4/ip_local_port_range")
	var last error
	for range 1000 {
		port := portMin + 2*rand.N((end-portMin)/2)
		reservation, err := net.Listen("tcp", loopback(port))
		if err != nil {
			last = err
			continue
		}
		addr := loopback(port + 1)
		if last = unused(addr); last == nil {
			t.Cleanup(func() { reservation.Close() })
			return addr
		}
		reservation.Close()
	}
	t.Fatalf("no port from %d to %d is free for both UDP and TCP: %v", portMin, end-1, last)
	return ""
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// unused returns nil if no socket is bound to the address.
func unused(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}

// portEndOf returns the lowest port that the system gives to sockets without a fixed port, from a file of Linux with the
// lowest and the highest. Where the file is missing, or its lowest port leaves fewer than a thousand, it returns portEnd.
func portEndOf(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return portEnd
	}
	var lowest, highest int
	if _, err := fmt.Sscan(string(text), &lowest, &highest); err != nil || lowest < portMin+1000 {
		return portEnd
	}
	return min(lowest, portEnd)
}
