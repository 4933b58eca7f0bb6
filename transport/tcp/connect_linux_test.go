package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stateSynSent is TCP_SYN_SENT of linux/tcp_states.h, as in /proc/net/tcp.
const stateSynSent = "02"

// TestConnectTriesAgain: while a SYN is unanswered, another socket is tried, and the first one with an answer is used. The listener
// answers no SYN while its queue is full.
func TestConnectTriesAgain(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	own, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", own.(*syscall.SockaddrInet4).Port)
	first, err := net.Dial("tcp", addr) // fills the queue
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()

	nodes := newTestNodes(t, 1, Config{})
	type outcome struct {
		sock net.Conn
		err  error
	}
	connected := make(chan outcome, 1)
	go func() {
		sock, err := nodes[0].connect(context.Background(), addr, time.Now().Add(time.Minute))
		connected <- outcome{sock, err}
	}()
	eventually(t, "three sockets wait for an answer", func() bool { return unanswered(t, addr) == 3 })
	listener, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			sock, err := listener.Accept()
			if err != nil {
				return
			}
			sock.Close()
		}
	}()
	got := <-connected
	if got.err != nil {
		t.Fatal(got.err)
	}
	got.sock.Close()
	eventually(t, "no other socket is left", func() bool { return unanswered(t, addr) == 0 })
}

// unanswered returns the number of sockets of this host that wait for the answer of addr to their SYN.
func unanswered(t *testing.T, addr string) (n int) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscanf(addr, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(table), "\n") {
		if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", port)) && f[3] == stateSynSent {
			n++
		}
	}
	return n
}
