package quic

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// dropAll has the kernel drop all packets that arrive for the UDP socket of a node.
func dropAll(t *testing.T, n *testNode) {
	t.Helper()
	raw, err := n.end.packets.(*socket).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStall checks that a conn with unacknowledged bytes ends on both sides if no packet arrives any more at one of them, watched or not, and
// that both know that the process of the other one lives.
func TestStall(t *testing.T) {
	for name, lossy := range map[string]int{"packets are lost": 1, "acknowledgements are lost": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := newTestNodes(t, 2, silent())
			from, to := connect(t, nodes[0], nodes[1])
			awaitWatch(t, from)
			awaitWatch(t, to)
			s, _ := pipeBetween(t, from, to)
			dropAll(t, nodes[lossy])
			began := time.Now()
			if _, err := s.Write([]byte("lost")); err != nil {
				t.Fatal(err)
			}
			awaitDone(t, from)
			t.Logf("ended after %v: %v", time.Since(began), from.Err())
			if err := from.Err(); !errors.Is(err, transport.ErrStalled) || !strings.Contains(err.Error(), "its process answers over TCP") {
				t.Errorf("the conn has ended: %v, want %v with the reason", err, transport.ErrStalled)
			}
			awaitDone(t, to)
			if err := to.Err(); !errors.Is(err, transport.ErrPeerClosed) && !errors.Is(err, transport.ErrStalled) {
				t.Errorf("the conn of the peer has ended: %v, want %v or %v", err, transport.ErrPeerClosed, transport.ErrStalled)
			}
		})
	}
}

// TestStalledIdle checks that a conn without unacknowledged bytes does not end.
func TestStalledIdle(t *testing.T) {
	t.Parallel()
	nodes := newTestNodes(t, 2, silent())
	from, to := connect(t, nodes[0], nodes[1])
	pipeBetween(t, from, to)
	time.Sleep(3 * stallInterval) // for acknowledgements
	dropAll(t, nodes[1])
	time.Sleep(3 * stallMin)
	if err := from.Err(); err != nil {
		t.Errorf("the conn has ended: %v", err)
	}
}

// TestStoppedPeer checks that a stopped process is alive, also while bytes wait for it: it goes on where it was.
func TestStoppedPeer(t *testing.T) {
	t.Parallel()
	eachDirection(t, silent(), func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		awaitWatch(t, c.(*Conn))
		s, err := c.OpenPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		r, err := c.AcceptPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		readByte(t, r, 'x')
		if err := peer.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(stallMin + 3*watchTimeout) // for questions without an answer
		if err := peer.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		readByte(t, r, 'y')
		if err := c.Err(); err != nil {
			t.Errorf("the conn has ended: %v", err)
		}
	})
}
