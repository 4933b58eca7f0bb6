package stream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCluster returns transports over unix sockets.
func newCluster(tb testing.TB, n int) (made transporttest.Cluster) {
	ca := testpeer.NewCA(tb)
	dir := tb.TempDir()
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		creds := ca.Node(tb, name)
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			tb.Fatal(err)
		}
		t, err := New(Config{
			Name: "unix", Locality: transport.SameHost, Listener: l,
			Dial: func(ctx context.Context, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", addr)
			},
		}, transport.Env{
			Node: name, Server: creds.Server(), Client: creds.Client, Peer: creds.Peer, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			tb.Fatal(err)
		}
		made.Transports = append(made.Transports, t)
		made.Identities = append(made.Identities, name)
	}
	made.Kill = func(i int) {
		made.Transports[i].(*streams).stop(func(c *conn) { c.end(transport.ErrClosed) })
	}
	return made
}

func TestConformance(t *testing.T) { transporttest.Run(t, newCluster) }
