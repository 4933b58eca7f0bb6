package tcp

import (
	"net"
	"strings"
	"testing"
	"time"
)

// TestUnauthenticatedClients checks that clients that send nothing, garbage, or a part of
// a handshake do not keep others from being accepted.
func TestUnauthenticatedClients(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		ca := newTestCA(t)
		cfg.MaxHandshakes, cfg.HandshakeTimeout, cfg.minAge = 8, time.Hour, 50*time.Millisecond
		server := newTestNode(t, cfg, ca.node(t, "server"))
		client := newTestNode(t, cfg, ca.node(t, "client"))
		for _, text := range []string{
			"", "GET / HTTP/1.1\r\n\r\n", "tnex", magicControl, magicTLS, magicPlain,
			magicControl + "\x16\x03\x01", magicTLS + strings.Repeat("x", 100), "\x16\x03\x01",
		} {
			for range 2 * cfg.MaxHandshakes {
				dialRaw(t, server, text)
			}
			dialed, accepted := connect(t, client, server)
			pipeBetween(t, dialed, accepted)
		}
		if inside := server.pending.limiter.Len(); inside > cfg.MaxHandshakes {
			t.Errorf("%d unauthenticated sockets, want at most %d", inside, cfg.MaxHandshakes)
		}
	})
}

// TestAbortedHandshake checks that an aborted handshake leaves nothing behind.
func TestAbortedHandshake(t *testing.T) {
	server := newTestNodes(t, 1, Config{})[0]
	for _, text := range []string{"", "tn", magicControl, magicTLS, magicControl + "\x16\x03\x01\x02"} {
		dialRaw(t, server, text).Close()
	}
	eventually(t, "the end of the unauthenticated sockets", func() bool {
		server.pending.mu.Lock()
		defer server.pending.mu.Unlock()
		return len(server.pending.tickets) == 0
	})
	wantNothingAccepted(t, server)
}

// TestNotTCP checks that connections other than TCP are closed.
func TestNotTCP(t *testing.T) {
	l := &pipeListener{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
	server := newTestNode(t, Config{Listener: l}, newTestCA(t).node(t, "server"))
	here, there := net.Pipe()
	l.conns <- there
	here.SetDeadline(time.Now().Add(soon))
	if _, err := here.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that is not TCP is served")
	}
	if server.Addr() != "pipe" {
		t.Errorf("Addr() = %q", server.Addr())
	}
}

// A pipeListener accepts the conns of a channel.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
