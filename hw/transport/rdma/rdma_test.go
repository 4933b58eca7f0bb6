//go:build linux

package rdma

import (
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needDevice skips a test on hosts without RDMA.
func needDevice(tb testing.TB) {
	names, err := verbs.Devices()
	require.Have(tb, "rdma", err == nil && len(names) > 0, "there is no RDMA device; \"make rdma\" runs the test in a virtual machine with one")
}

func newCluster(tb testing.TB, n int) (made transporttest.Cluster) {
	ca := testpeer.NewCA(tb)
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		creds := ca.Node(tb, name)
		t, err := New(Config{Listen: "127.0.0.1:0"}, transport.Env{
			Node: name, Server: creds.Server(), Client: creds.Client, Peer: creds.Peer, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			tb.Fatal(err)
		}
		made.Transports = append(made.Transports, t)
		made.Identities = append(made.Identities, name)
	}
	made.Kill = func(i int) {
		made.Transports[i].(*rdma).stop(func(c *conn) { c.end(transport.ErrClosed) })
	}
	return made
}

func TestConformance(t *testing.T) {
	needDevice(t)
	transporttest.Run(t, newCluster)
}
