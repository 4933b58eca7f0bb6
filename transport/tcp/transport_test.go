package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestAddresses checks that a node that listens at all addresses is reached by name, IPv4
// and IPv6, and that addresses are in plain form.
func TestAddresses(t *testing.T) {
	ca := newTestCA(t)
	server := newTestNode(t, Config{Addr: ":0"}, ca.node(t, "server"))
	client := newTestNode(t, Config{Addr: ":0"}, ca.node(t, "client"))
	_, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]string{"127.0.0.1": "127.0.0.1", "::ffff:127.0.0.1": "127.0.0.1", "localhost": "", "": ""}
	if sock, err := net.Listen("tcp", "[::1]:0"); err == nil {
		sock.Close()
		hosts["::1"] = "::1"
	}
	for host, want := range hosts {
		c, err := client.Dial(t.Context(), net.JoinHostPort(host, port), "server")
		if err != nil {
			t.Fatal(err)
		}
		s, err := server.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			continue
		}
		if got, want := c.RemoteAddr(), net.JoinHostPort(want, port); got != want {
			t.Errorf("%s: the client sees %s, want %s", host, got, want)
		}
		if got, _, _ := net.SplitHostPort(s.RemoteAddr()); got != want {
			t.Errorf("%s: the server sees %s, want %s", host, got, want)
		}
	}
}

func TestListenFails(t *testing.T) {
	node := newTestNodes(t, 1, Config{})[0]
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:70000", node.Addr()} {
		if second, err := Listen(Config{Addr: addr}, node.creds); err == nil {
			second.Close()
			t.Errorf("listens at %q", addr)
		} else if !strings.Contains(err.Error(), strings.TrimPrefix(addr, "127.0.0.1:")) {
			t.Errorf("the error does not name %q: %v", addr, err)
		}
	}
}

// TestSelf checks that a node can connect to itself.
func TestSelf(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		node := newTestNodes(t, 1, cfg)[0]
		dialed, accepted := connect(t, node, node)
		pipeBetween(t, dialed, accepted)
		pipeBetween(t, accepted, dialed)
		dialed.Close()
		awaitEnd(t, accepted, transport.ErrPeerClosed)
	})
}

// TestSharedPortCloses checks that Accept fails when the port is closed, and that conns
// continue.
func TestSharedPortCloses(t *testing.T) {
	ca := newTestCA(t)
	end, l := sharedPort(t)
	server := newTestNode(t, Config{Listener: l}, ca.node(t, "server"))
	client := newTestNode(t, Config{}, ca.node(t, "client"))
	if server.Addr() != end.Addr() {
		t.Errorf("Addr() = %s, want that of the endpoint, %s", server.Addr(), end.Addr())
	}
	dialed, accepted := connect(t, client, server)
	s, r := pipeBetween(t, dialed, accepted)
	end.Close()
	if _, err := server.Accept(t.Context()); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Accept without a port: %v, want ErrClosed", err)
	}
	if _, err := s.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 10)); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if _, err := client.Dial(t.Context(), server.Addr(), "server"); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Dial: %v, want ErrPeerGone", err)
	}
}

// TestDialUnsharedEndpoint checks that Dial fails at once, with the likely reason, at an
// endpoint that does not share its port.
func TestDialUnsharedEndpoint(t *testing.T) {
	client := newTestNodes(t, 1, Config{})[0]
	end, l := sharedPort(t)
	l.Close()
	start := time.Now()
	_, err := client.Dial(t.Context(), end.Addr(), "")
	if !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), end.Addr()) {
		t.Errorf("Dial: %v, want ErrPeerGone and the address", err)
	}
	if took := time.Since(start); took > soon {
		t.Errorf("it took %v", took)
	}
}

// TestSilentServer checks that Dial to a server that never answers ends at the timeout or
// with Close.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := newTestNodes(t, 1, Config{HandshakeTimeout: 50 * time.Millisecond})[0]
	if _, err := client.Dial(t.Context(), l.Addr().String(), ""); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Dial: %v, want ErrPeerGone", err)
	}
	patient := newTestNodes(t, 1, Config{HandshakeTimeout: time.Hour})[0]
	time.AfterFunc(20*time.Millisecond, func() { patient.Close() })
	if _, err := patient.Dial(t.Context(), l.Addr().String(), ""); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Dial: %v, want ErrClosed", err)
	}
}

// handshake returns a client that has sent the start of a control socket.
func handshake(t *testing.T, server *testNode, creds Credentials) *tls.Conn {
	t.Helper()
	c := tls.Client(dialRaw(t, server, magicControl), creds.Client("server"))
	if _, err := readGreeting(c); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(greeting{pipesMax: 1}.append(nil)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCloseUnresponsivePeer checks that Conn.Close does not wait for a peer that reads
// nothing, that Close of the transport waits at most a second, and that the peer still
// receives the close message.
func TestCloseUnresponsivePeer(t *testing.T) {
	ca := newTestCA(t)
	server := newTestNode(t, Config{}, ca.node(t, "server"))
	creds := ca.node(t, "client")
	// If Conn.Close waited, every try would take closeTimeout. On a busy machine some tries
	// are slow anyway.
	const tries = 10
	var client *tls.Conn
	for n := 0; ; n++ {
		client = handshake(t, server, creds)
		c, err := server.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		c.Close()
		if time.Since(start) < closeTimeout {
			break
		} else if n == tries {
			t.Errorf("each of %d calls of Conn.Close took %v or more", tries, closeTimeout)
			break
		}
	}
	start := time.Now()
	server.Close()
	if took := time.Since(start); took > soon {
		t.Errorf("Close took %v", took)
	}
	var buf [messageBytes]byte
	for _, want := range []byte{msgReady, msgBye} {
		if m, err := readMessage(client, &buf); err != nil || m.kind != want {
			t.Errorf("the client reads %q, %v, want %q", m.kind, err, want)
		}
	}
}

// TestProtocolViolations checks that a peer that violates the protocol is disconnected.
func TestProtocolViolations(t *testing.T) {
	ca := newTestCA(t)
	server := newTestNode(t, Config{}, ca.node(t, "server"))
	creds := ca.node(t, "client")
	for name, messages := range map[string][]message{
		"no such message": {{kind: '?'}},
		"requests a dial": {{kind: msgWant, pipe: 1}},
		"takes nothing":   {{kind: msgTake, pipe: pairedBit}},
		"shares no pair":  {{kind: msgShare, pipe: 2}},
		"is ready twice":  {{kind: msgReady}, {kind: msgReady}},
	} {
		client := handshake(t, server, creds)
		c, err := server.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			client.Write(m.append(nil))
		}
		if _, err := io.Copy(io.Discard, client); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		awaitEnd(t, c, transport.ErrPeerGone)
		t.Logf("%s: %v", name, c.Err())
	}
	// Messages about unknown pipes are late, but valid.
	client := handshake(t, server, creds)
	c, err := server.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []byte{msgCannot, msgEnd, msgDrop} {
		client.Write(message{kind: kind, pipe: 77}.append(nil))
	}
	client.Write(message{kind: msgBye}.append(nil))
	awaitEnd(t, c, transport.ErrPeerClosed)
}

// TestControlQueueLimit checks that messages for a peer that does not read are limited.
func TestControlQueueLimit(t *testing.T) {
	ca := newTestCA(t)
	server := newTestNode(t, Config{}, ca.node(t, "server"))
	handshake(t, server, ca.node(t, "client"))
	accepted, err := server.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := accepted.(*conn)
	eventually(t, "the end of the conn", func() bool {
		for range queueMax / messageBytes / 4 {
			c.send(message{kind: msgDrop})
		}
		return c.Err() != nil
	})
	awaitEnd(t, c, transport.ErrPeerGone)
	if err := c.Err(); !strings.Contains(err.Error(), "does not read") {
		t.Errorf("Err() = %v", err)
	}
}
