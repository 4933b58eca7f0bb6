package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// testCreds are Credentials that use the common name as the identity.
type testCreds struct {
	*testpeer.Creds
	cert tls.Certificate
}

func (c *testCreds) base() *tls.Config { return c.Base() }

const joinALPN = testpeer.JoinALPN

// A testCA signs the certificates of a cluster.
type testCA struct{ *testpeer.CA }

func newTestCA(tb testing.TB) *testCA {
	tb.Helper()
	return &testCA{testpeer.NewCA(tb)}
}

// node returns the credentials of a node.
func (ca *testCA) node(tb testing.TB, name string) *testCreds {
	tb.Helper()
	c := ca.Node(tb, name)
	return &testCreds{c, c.Cert}
}

// A testNode is a transport and its identity.
type testNode struct {
	*Transport
	name string
}

// kill closes the sockets as the kernel does for a killed process.
func (n *testNode) kill() {
	n.listener.Close()
	n.pending.close()
	n.mu.Lock()
	conns := make([]*conn, 0, len(n.conns))
	for c := range n.conns {
		conns = append(conns, c)
	}
	n.mu.Unlock()
	for _, c := range conns {
		c.end(gone(errors.New("killed")))
	}
}

func newTestNode(tb testing.TB, cfg Config, creds *testCreds) *testNode {
	tb.Helper()
	if cfg.Addr == "" && cfg.Listener == nil {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = time.Minute // Many TLS handshakes at once take long on a busy machine.
	}
	tr, err := Listen(cfg, creds)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tr.Close() })
	return &testNode{tr, creds.Name()}
}

// newTestNodes returns nodes n0, n1, … of a cluster.
func newTestNodes(tb testing.TB, n int, cfg Config) []*testNode {
	tb.Helper()
	ca := newTestCA(tb)
	nodes := make([]*testNode, n)
	for i := range nodes {
		nodes[i] = newTestNode(tb, cfg, ca.node(tb, fmt.Sprintf("n%d", i)))
	}
	return nodes
}

const soon = 30 * time.Second // generous ceiling for immediate effects

// connect dials from a to b and returns both ends.
func connect(tb testing.TB, a, b *testNode) (dialed, accepted *conn) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), soon)
	defer cancel()
	c, err := a.Dial(ctx, b.Addr(), b.name)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := b.Accept(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return c.(*conn), s.(*conn)
}

// pipeBetween opens a pipe and carries a byte over it.
func pipeBetween(tb testing.TB, from, to *conn) (*sender, *receiver) {
	tb.Helper()
	s := openPipe(tb, from.OpenPipe, 1)
	return s, acceptPipe(tb, to, 1)
}

// openPipe opens a pipe and writes its first byte.
func openPipe(tb testing.TB, open func(context.Context) (transport.Sender, error), first byte) *sender {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), soon)
	defer cancel()
	s, err := open(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.Write([]byte{first}); err != nil {
		tb.Fatal(err)
	}
	return s.(*sender)
}

// acceptPipe accepts a pipe and reads its first byte.
func acceptPipe(tb testing.TB, to *conn, first byte) *receiver {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), soon)
	defer cancel()
	r, err := to.AcceptPipe(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	var got byte
	if n, err := r.ReadFunc(1, func(p []byte) { got = p[0] }); n != 1 || err != nil || got != first {
		tb.Fatalf("first byte: read %d, %d, %v, want %d", n, got, err, first)
	}
	return r.(*receiver)
}

// awaitEnd waits for the end of a conn and checks its error.
func awaitEnd(tb testing.TB, c transport.Conn, want error) {
	tb.Helper()
	select {
	case <-c.Done():
	case <-time.After(soon):
		tb.Fatalf("the conn has not ended after %v", soon)
	}
	if err := c.Err(); !errors.Is(err, want) {
		tb.Errorf("Err() = %v, want %v", err, want)
	}
}

// eventually waits until ok returns true.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for start := time.Now(); !ok(); time.Sleep(time.Millisecond) {
		if time.Since(start) > soon {
			tb.Fatalf("%s did not happen within %v", what, soon)
		}
	}
}
