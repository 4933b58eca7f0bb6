package tcp

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// eachPeer runs a test on conns to another process, plain or not, dialed by either side.
func eachPeer(t *testing.T, test func(t *testing.T, c transport.Conn, peer *testpeer.Child)) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		t.Run("dialed", func(t *testing.T) {
			ca := newTestCA(t)
			node := newTestNode(t, cfg, ca.node(t, "parent"))
			peer := startChild(t, ca, cfg, "")
			c, err := node.Dial(t.Context(), peer.Addr, "child")
			if err != nil {
				t.Fatal(err)
			}
			test(t, c, peer)
		})
		t.Run("accepted", func(t *testing.T) {
			ca := newTestCA(t)
			node := newTestNode(t, cfg, ca.node(t, "parent"))
			peer := startChild(t, ca, cfg, node.Addr())
			c, err := node.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			test(t, c, peer)
		})
	})
}

// TestKill9 checks that a killed process is detected at once, and that its pipes do not
// end with EOF.
func TestKill9(t *testing.T) {
	eachPeer(t, func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		s, r := openEcho(t, c)
		reading, writing := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, r)
			reading <- err
		}()
		go func() {
			for {
				if _, err := s.Write(make([]byte, 1<<20)); err != nil {
					writing <- err
					return
				}
			}
		}()
		time.Sleep(20 * time.Millisecond) // while it writes
		start := time.Now()
		if err := peer.Cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, c, transport.ErrPeerGone)
		t.Logf("noticed after %v: %v", time.Since(start), c.Err())
		if err := <-reading; !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("Read: %v, want ErrPeerGone", err)
		}
		if err := <-writing; !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("Write: %v, want ErrPeerGone", err)
		}
	})
}

// TestOrderlyExit checks that a process that closes before it exits does not count as
// dead.
func TestOrderlyExit(t *testing.T) {
	eachPeer(t, func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		_, r := openEcho(t, c)
		peer.Stdin.Close()
		awaitEnd(t, c, transport.ErrPeerClosed)
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, transport.ErrPeerClosed) {
			t.Errorf("Read: %v, want ErrPeerClosed", err)
		}
		if err := peer.Cmd.Wait(); err != nil {
			t.Errorf("the child: %v", err)
		}
	})
}

// openEcho opens a pipe each way to the child.
func openEcho(t *testing.T, c transport.Conn) (transport.Sender, transport.Receiver) {
	t.Helper()
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
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil || b[0] != 'x' {
		t.Fatalf("read %q, %v", b, err)
	}
	return s, r
}

func startChild(t *testing.T, ca *testCA, cfg Config, dial string) *testpeer.Child {
	t.Helper()
	creds := testpeer.EncodeCreds(t, ca.CA, ca.Node(t, "child"))
	return testpeer.StartChild(t, childEnv, childOrders{Creds: creds, Plain: cfg.Plain, Dial: dial})
}
