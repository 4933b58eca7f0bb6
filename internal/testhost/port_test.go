package testhost

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// Ports differ while their tests run, are free for both protocols, and are not among those of sockets without a fixed port.
func TestFreePort(t *testing.T) {
	given := map[string]bool{}
	for range 200 {
		addr := FreePort(t)
		if given[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		given[addr] = true
		if err := unused(addr); err != nil {
			t.Fatalf("%s is not free: %v", addr, err)
		}
		_, text, _ := net.SplitHostPort(addr)
		port, err := strconv.Atoi(text)
		if err != nil || port < portMin || port >= portEndOf("/proc/sys/net/ipv4/ip_local_port_range") {
			t.Fatalf("%s: want a port from %d to %d", addr, portMin, portEnd-1)
		}
		// A second process that would return this port fails here.
		if l, err := net.Listen("tcp", loopback(port-1)); err == nil {
			l.Close()
			t.Fatalf("the reservation of %s is not bound", addr)
		}
	}
}

// A port in use by one protocol is not free.
func TestUsedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, addr := range []string{l.Addr().String(), c.LocalAddr().String()} {
		if unused(addr) == nil {
			t.Errorf("%s is in use and counts as free", addr)
		}
	}
}

func TestPortEnd(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int{"32768\t60999\n": 32_768, "20000 60999": 20_000, "40000 60999": 32_768, "1024 65535": 32_768, "none": 32_768} {
		file := filepath.Join(dir, "range")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := portEndOf(file); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := portEndOf(filepath.Join(dir, "missing")); got != portEnd {
		t.Errorf("without a file: %d, want %d", got, portEnd)
	}
}
