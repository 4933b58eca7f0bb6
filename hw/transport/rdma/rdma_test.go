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
	if library := os.Getenv(libraryVariable); library != "" {
		diagnoseHere(library)
		return
	}
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

// newCluster makes n transports. The test fails if the queue pair of one of their conns has failed by its end.
func newCluster(tb testing.TB, n int) transporttest.Cluster {
	tb.Helper()
	counters := new(Counters)
	tb.Cleanup(func() { wantNoFailure(tb, counters) })
	return clusterOf(tb, counters, make([]Config, n)...)
}

// newBreakable is newCluster for tests that break queue pairs.
func newBreakable(tb testing.TB, n int) transporttest.Cluster {
	tb.Helper()
	return clusterOf(tb, new(Counters), make([]Config, n)...)
}

// clusterOf makes transports with the configurations. Their objects must be freed by the end of the test, which closes them.
func clusterOf(tb testing.TB, counters *Counters, configs ...Config) (made transporttest.Cluster) {
	tb.Helper()
	wantNoObjects(tb)
	ca := testpeer.NewCA(tb)
	for i, cfg := range configs {
		name := fmt.Sprintf("n%d", i)
		creds := ca.Node(tb, name)
		cfg.Listen, cfg.Stall, cfg.Counters = "127.0.0.1:0", patience, counters
		t, err := New(cfg, transport.Env{
			Node: name, Server: creds.Server(), Client: creds.Client, Peer: creds.Peer, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			tb.Fatal(err)
		}
		made.Transports = append(made.Transports, t)
		made.Identities = append(made.Identities, name)
	}
	made.Kill = func(i int) {
		made.Transports[i].(*rdma).stop(func(c *conn) {
			c.tcp.Close() // It says nothing.
			c.end(transport.ErrClosed)
		})
	}
	return made
}

// wantNoFailure fails a test if a queue pair has failed.
func wantNoFailure(tb testing.TB, counters *Counters) {
	tb.Helper()
	if n := counters.Failures(); n > 0 {
		tb.Errorf("the queue pairs of %d conns have failed, want none", n)
	}
}

// wantNoObjects fails the test at its end if it has not freed all objects of the library, which only the fake counts.
func wantNoObjects(tb testing.TB) {
	tb.Helper()
	if fake == nil {
		return
	}
	before := fake.Live()
	tb.Cleanup(func() {
		if n := fake.Live(); n != before {
			tb.Errorf("%d objects of the library after the test, and %d before", n, before)
		}
	})
}

func TestConformance(t *testing.T) {
	needDevice(t)
	transporttest.Run(t, func(tb testing.TB, n int) transporttest.Cluster {
		switch tb.Name() {
		case "TestConformance/RemoteRefused", "TestConformance/RemoteRevoke": // A write without a grant breaks the queue pair.
			return newBreakable(tb, n)
		}
		return newCluster(tb, n)
	})
}
