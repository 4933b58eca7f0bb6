package quic

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// A testNode is an endpoint with a transport. Close closes both.
type testNode struct {
	*Transport
	end  *Endpoint
	name string
}

func (n *testNode) Close() error {
	return errors.Join(n.Transport.Close(), n.end.Close())
}

// kill closes the sockets as the kernel does for a killed process.
func (n *testNode) kill() {
	if n.end.watch != nil {
		n.end.watch.listener.Close()
	}
	n.end.packets.Close()
}

func newTestNode(tb testing.TB, cfg Config, creds *testpeer.Creds) *testNode {
	tb.Helper()
	if cfg.Addr == "" && cfg.PacketConn == nil {
		cfg.Addr = "127.0.0.1:0"
	}
	end, err := Listen(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tr, err := end.Transport(creds)
	if err != nil {
		end.Close()
		tb.Fatal(err)
	}
	n := &testNode{Transport: tr, end: end, name: creds.Name()}
	tb.Cleanup(func() { n.Close() })
	return n
}

// newTestNodes returns nodes n0, n1, … of a cluster.
func newTestNodes(tb testing.TB, n int, cfg Config) []*testNode {
	tb.Helper()
	ca := testpeer.NewCA(tb)
	nodes := make([]*testNode, n)
	for i := range nodes {
		nodes[i] = newTestNode(tb, cfg, ca.Node(tb, fmt.Sprintf("n%d", i)))
	}
	return nodes
}

// connect dials from a to b and returns both ends.
func connect(tb testing.TB, a, b *testNode) (dialed, accepted *Conn) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), soon)
	defer cancel()
	c, err := a.Dial(ctx, b.Addr(), b.name)
	if err != nil {
		tb.Fatal(err)
	}
	for {
		s, err := b.Accept(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		if s.Peer() == a.name {
			return c.(*Conn), s.(*Conn)
		}
	}
}

// pipeBetween opens a pipe and carries a byte over it.
func pipeBetween(tb testing.TB, from, to *Conn) (transport.Sender, transport.Receiver) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), soon)
	defer cancel()
	s, err := from.OpenPipe(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.Write([]byte{1}); err != nil {
		tb.Fatal(err)
	}
	r, err := to.AcceptPipe(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if n, err := r.ReadFunc(1, func([]byte) {}); n != 1 || err != nil {
		tb.Fatalf("first byte: read %d, %v", n, err)
	}
	return s, r
}
