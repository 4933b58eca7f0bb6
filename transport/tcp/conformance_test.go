package tcp

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childMain()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	for name, cfg := range variants() {
		if testing.Short() && name == "Plain" {
			continue // the shared port runs the same code
		}
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, cluster(cfg))
		})
	}
	for name, cfg := range variants() {
		if testing.Short() && name == "TLS" {
			continue // paired pipes and TLS are independent
		}
		t.Run(name+"Paired", func(t *testing.T) {
			transporttest.Run(t, func(tb testing.TB, n int) transporttest.Cluster {
				made := cluster(cfg)(tb, n)
				for i, of := range made.Transports {
					made.Transports[i] = pairing{of}
				}
				return made
			})
		})
	}
	t.Run("PlainOnSharedPort", func(t *testing.T) {
		transporttest.Run(t, clusterOnSharedPorts)
	})
}

func variants() map[string]Config {
	return map[string]Config{"TLS": {}, "Plain": {Plain: true}}
}

func cluster(cfg Config) transporttest.Factory {
	return func(tb testing.TB, n int) transporttest.Cluster {
		ca := newTestCA(tb)
		nodes := make([]*testNode, n)
		for i := range nodes {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				tb.Fatal(err)
			}
			cfg.Listener = l
			if _, ok := tb.(*testing.T); ok {
				cfg.Listener = smallBuffers{l}
			}
			nodes[i] = newTestNode(tb, cfg, ca.node(tb, fmt.Sprintf("n%d", i)))
		}
		return conforming(nodes)
	}
}

// pairing is a transport with only paired pipes.
type pairing struct{ transport.Transport }

func (p pairing) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	return paired(p.Transport.Dial(ctx, addr, peer))
}

func (p pairing) Accept(ctx context.Context) (transport.Conn, error) {
	return paired(p.Transport.Accept(ctx))
}

type pairedConn struct{ transport.Conn }

func paired(c transport.Conn, err error) (transport.Conn, error) {
	if err != nil {
		return nil, err
	}
	return pairedConn{c}, nil
}

func (c pairedConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	return transport.CapabilitiesOf(c.Conn).PairOpener.OpenPaired(ctx)
}

// smallBuffers accepts sockets with small buffers.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		c.(*net.TCPConn).SetReadBuffer(256 << 10)
		c.(*net.TCPConn).SetWriteBuffer(256 << 10)
	}
	return c, err
}

func conforming(nodes []*testNode) (made transporttest.Cluster) {
	made.Kill = func(i int) { nodes[i].kill() }
	for _, n := range nodes {
		made.Transports = append(made.Transports, n)
		made.Identities = append(made.Identities, n.name)
	}
	return made
}

// clusterOnSharedPorts uses the ports of QUIC endpoints.
func clusterOnSharedPorts(tb testing.TB, n int) transporttest.Cluster {
	ca := newTestCA(tb)
	nodes := make([]*testNode, n)
	for i := range nodes {
		_, l := sharedPort(tb)
		nodes[i] = newTestNode(tb, Config{Listener: l, Plain: true}, ca.node(tb, fmt.Sprintf("n%d", i)))
	}
	return conforming(nodes)
}

func sharedPort(tb testing.TB) (*quic.Endpoint, net.Listener) {
	tb.Helper()
	e, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", Heartbeat: -1})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	l, err := e.Listener()
	if err != nil {
		tb.Fatal(err)
	}
	return e, l
}
