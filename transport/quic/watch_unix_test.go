//go:build unix

package quic

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// eachDirection runs a test on a conn to another process, dialed by either side.
func eachDirection(t *testing.T, cfg Config, test func(t *testing.T, c transport.Conn, peer *testpeer.Child)) {
	t.Run("dialed", func(t *testing.T) {
		ca := testpeer.NewCA(t)
		node := newTestNode(t, cfg, ca.Node(t, "parent"))
		peer := startChild(t, ca, "child", "")
		c, err := node.Dial(t.Context(), peer.Addr, "child")
		if err != nil {
			t.Fatal(err)
		}
		test(t, c, peer)
	})
	t.Run("accepted", func(t *testing.T) {
		ca := testpeer.NewCA(t)
		node := newTestNode(t, cfg, ca.Node(t, "parent"))
		peer := startChild(t, ca, "child", node.Addr())
		c, err := node.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		test(t, c, peer)
	})
}

// silent is the configuration of conns without heartbeats: only the watch detects an end.
func silent() Config { return Config{Heartbeat: -1} }

// TestKill9 checks that a killed process is detected at once.
func TestKill9(t *testing.T) {
	eachDirection(t, silent(), func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		awaitWatch(t, c.(*Conn))
		r := openEcho(t, c)
		blocked := make(chan error, 1)
		go func() {
			_, err := r.Read(make([]byte, 1))
			blocked <- err
		}()

		killed(t, c, peer)
		if err := <-blocked; !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("blocked Read: %v, want ErrPeerGone", err)
		}
	})
}

// TestKillBeforeWatched checks that a process that dies before it is watched is detected.
func TestKillBeforeWatched(t *testing.T) {
	eachDirection(t, silent(), func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		killed(t, c, peer)
	})
}

// killed kills the peer, and checks that the conn ends.
func killed(t *testing.T, c transport.Conn, peer *testpeer.Child) {
	t.Helper()
	start := time.Now()
	if err := peer.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitDone(t, c)
	t.Logf("noticed after %v: %v", time.Since(start), c.Err())
	if err := c.Err(); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Err() = %v, want ErrPeerGone", err)
	}
}

// TestOrderlyExit checks that a process that closes before it exits does not count as
// dead.
func TestOrderlyExit(t *testing.T) {
	eachDirection(t, silent(), func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		awaitWatch(t, c.(*Conn))
		peer.Stdin.Close()
		awaitDone(t, c)
		if err := c.Err(); !errors.Is(err, transport.ErrPeerClosed) {
			t.Errorf("Err() = %v, want ErrPeerClosed", err)
		}
	})
}

// TestStopped checks that a process that is stopped for less than the idle timeout does
// not count as dead, although it misses heartbeats.
func TestStopped(t *testing.T) {
	t.Parallel()
	cfg := Config{Heartbeat: 200 * time.Millisecond, IdleTimeout: 20 * time.Second}
	eachDirection(t, cfg, func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		awaitWatch(t, c.(*Conn))
		r := openEcho(t, c)
		if err := peer.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
		if err := peer.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if err := c.Err(); err != nil {
			t.Fatalf("the conn to a stopped process ended: %v", err)
		}
		s, err := c.OpenPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte("y")); err != nil {
			t.Fatal(err)
		}
		r.Close()
		again, err := c.AcceptPipe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		readByte(t, again, 'y')
	})
}

// openEcho sends a byte to the child and reads it back.
func openEcho(t *testing.T, c transport.Conn) transport.Receiver {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	s, err := c.OpenPipe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	r, err := c.AcceptPipe(ctx)
	if err != nil {
		t.Fatal(err)
	}
	readByte(t, r, 'x')
	return r
}

func readByte(t *testing.T, r transport.Receiver, want byte) {
	t.Helper()
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil || b[0] != want {
		t.Fatalf("read %q, %v, want %q", b, err, want)
	}
}

func startChild(t *testing.T, ca *testpeer.CA, name, dial string) *testpeer.Child {
	t.Helper()
	return testpeer.StartChild(t, childEnv, childOrders{EncodedCreds: testpeer.EncodeCreds(t, ca, ca.Node(t, name)), Dial: dial})
}
