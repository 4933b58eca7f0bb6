//go:build linux

package rdma

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/hw/internal/verbsfake"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

// fake is the library of a host without RDMA devices, or nil if it cannot be built.
var (
	fake    *verbsfake.Fake
	unbuilt error
)

// TestMain uses a fake of libibverbs on hosts without RDMA devices, if there is a C compiler. After the tests no object of the fake
// may be left.
func TestMain(m *testing.M) {
	if paths, _ := filepath.Glob("/sys/class/infiniband/*"); len(paths) == 0 {
		fake, unbuilt = verbsfake.Load()
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 && fake != nil && fake.Live() != 0 {
			fmt.Fprintf(os.Stderr, "%d objects of libibverbs are left\n", fake.Live())
			code = 1
		}
		os.Exit(code)
	}))
}

// needDevice skips a test on hosts without RDMA and without a fake of it.
func needDevice(tb testing.TB) {
	tb.Helper()
	if fake == nil {
		needRDMA(tb)
	}
}

// needRDMA skips a test on hosts without RDMA.
func needRDMA(tb testing.TB) {
	tb.Helper()
	var names []string
	err := errors.New("the library is a fake")
	if fake == nil {
		names, err = verbs.Devices()
	}
	require.Have(tb, "rdma", err == nil && len(names) > 0, "there is no RDMA device; \"make rdma\" runs the test in a virtual machine with one")
}

// needFake skips a test unless the library is a fake.
func needFake(tb testing.TB) {
	tb.Helper()
	require.Have(tb, "verbsfake", fake != nil || unbuilt != nil, "the host has an RDMA device, which does not fail at will as the fake of libibverbs does")
	require.Have(tb, "cc", fake != nil, fmt.Sprintf("the fake of libibverbs cannot be built: %v", unbuilt))
}

func newCluster(tb testing.TB, n int) (made transporttest.Cluster) {
	ca := testpeer.NewCA(tb)
	for i := range n {
		name := fmt.Sprintf("n%d", i)
		creds := ca.Node(tb, name)
		t, err := New(Config{Listen: "127.0.0.1:0", Stall: patience}, transport.Env{
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
