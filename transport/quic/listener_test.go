package quic

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// unwatched is the configuration of nodes that open no watches.
func unwatched() Config {
	return Config{Heartbeat: -1, Watch: func(string) bool { return false }}
}

func share(t *testing.T, n *testNode) net.Listener {
	t.Helper()
	l, err := n.end.Listener()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dialTCP dials the TCP port of a node and writes text.
func dialTCP(t *testing.T, n *testNode, text string) net.Conn {
	t.Helper()
	sock, err := net.Dial("tcp", n.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	if _, err := io.WriteString(sock, text); err != nil {
		t.Fatal(err)
	}
	return sock
}

// wantCut waits until the other side has closed a connection.
func wantCut(t *testing.T, sock net.Conn, limit time.Duration) {
	t.Helper()
	start := time.Now()
	sock.SetReadDeadline(start.Add(soon))
	if n, err := sock.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d bytes, %v from a connection that should be closed", n, err)
	}
	if took := time.Since(start); took > limit {
		t.Errorf("it was closed after %v, want less than %v", took, limit)
	}
}

// TestListener checks that a connection that is not a watch is handed over whole, and
// that watches work beside it.
func TestListener(t *testing.T) {
	nodes := newTestNodes(t, 2, unwatched())
	l := share(t, nodes[1])
	if got, want := l.Addr().String(), nodes[1].Addr(); got != want {
		t.Errorf("Addr() = %s, want %s", got, want)
	}
	for _, text := range []string{"x", "NEXAR and more", "\x16\x03\x01"} {
		there := dialTCP(t, nodes[1], text)
		here, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		there.(*net.TCPConn).CloseWrite()
		var got bytes.Buffer
		if _, err := io.Copy(&got, here); err != nil || got.String() != text {
			t.Errorf("read %q, %v, want %q", got.String(), err, text)
		}
		if _, err := io.WriteString(here, "back"); err != nil {
			t.Fatal(err)
		}
		here.Close()
		if back, err := io.ReadAll(there); string(back) != "back" || err != nil {
			t.Errorf("got %q, %v back", back, err)
		}
	}
	dialed, accepted := connect(t, nodes[0], nodes[1])
	dialed.Watch()
	awaitWatch(t, dialed)
	awaitWatch(t, accepted)
}

// TestNoListener checks that such connections are closed without a Listener.
func TestNoListener(t *testing.T) {
	node := newTestNodes(t, 1, unwatched())[0]
	wantCut(t, dialTCP(t, node, "x"), watchTimeout)
	l := share(t, node)
	if _, err := node.end.Listener(); err == nil {
		t.Error("two may listen at once")
	}
	waiting := dialTCP(t, node, "x")
	eventually(t, "the hand-over", func() bool { return len(l.(*listener).waiting) == 1 })
	l.Close()
	wantCut(t, waiting, watchTimeout)
	wantCut(t, dialTCP(t, node, "x"), watchTimeout)
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of a closed listener: %v", err)
	}
	again := share(t, node)
	dialTCP(t, node, "x")
	if _, err := again.Accept(); err != nil {
		t.Error(err)
	}
}

// TestListenerEndsWithEndpoint also covers endpoints without a TCP port.
func TestListenerEndsWithEndpoint(t *testing.T) {
	ca := testpeer.NewCA(t)
	node := newTestNode(t, unwatched(), ca.Node(t, "n"))
	l := share(t, node)
	accepted := make(chan error)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	node.Close()
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept at the end of the endpoint: %v", err)
	}
	if _, err := node.end.Listener(); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Listener of a closed endpoint: %v", err)
	}
	mute := newTestNode(t, Config{NoWatch: true}, ca.Node(t, "mute"))
	if _, err := mute.end.Listener(); err == nil {
		t.Error("there is a Listener without a TCP port")
	}
}

// TestListenerEvictsSilentClients checks that silent clients make room for others.
func TestListenerEvictsSilentClients(t *testing.T) {
	cfg := unwatched()
	cfg.MaxHandshakes = 64
	node := newTestNode(t, cfg, testpeer.NewCA(t).Node(t, "n"))
	l := share(t, node)
	var first net.Conn
	for i := range cfg.MaxHandshakes {
		sock := dialTCP(t, node, "")
		if i == 0 {
			first = sock
		}
	}
	eventually(t, "unauthenticated clients", func() bool { return node.end.handshakes.admission.Len() == cfg.MaxHandshakes })
	dialTCP(t, node, "x")
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	wantCut(t, first, soon)
	if !accepted.(*sharedConn).Ticket().Prove() {
		t.Error("a client that has just come was evicted")
	}
}

// TestListenerBacklog checks the limit of connections that wait for Accept.
func TestListenerBacklog(t *testing.T) {
	node := newTestNodes(t, 1, unwatched())[0]
	l := share(t, node)
	for range sharedBacklogMax {
		dialTCP(t, node, "x")
	}
	eventually(t, "a full backlog", func() bool { return len(l.(*listener).waiting) == sharedBacklogMax })
	wantCut(t, dialTCP(t, node, "x"), soon)
	l.Close()
	eventually(t, "the end of the connections", func() bool { return node.end.handshakes.admission.Len() == 0 })
}
