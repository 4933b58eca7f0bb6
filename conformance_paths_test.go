package nexar

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

var (
	overShared   = medium{"shm", cost.QUIC(), listenShared}
	overRings    = medium{"shm without areas", cost.QUIC(), listenRings}
	overTCP      = medium{"tcp+tls", cost.QUIC(), listenTCP}
	overPlainTCP = medium{"tcp", cost.QUIC(), listenPlainTCP}
	overMixed    = medium{"mixed", cost.QUIC(), listenMixed}
)

// needs skips a test where the machine lacks what the medium needs.
func (m medium) needs(t *testing.T) {
	t.Helper()
	if strings.HasPrefix(m.name, "shm") || m.name == overMixed.name {
		err := shm.Supported()
		require.Have(t, "shm", err == nil, fmt.Sprint(err))
	}
}

// roads are the transports of a node that is reached on several paths.
type roads struct {
	transport.Transport
	paths []mesh.Path
}

func (r roads) Close() error {
	var errs []error
	for _, p := range r.paths {
		errs = append(errs, p.Transport.Close())
	}
	return errors.Join(errs...)
}

// pathsOf are the paths on which a node is reached.
func pathsOf(t transport.Transport) []mesh.Path {
	if r, ok := t.(roads); ok {
		return r.paths
	}
	return []mesh.Path{{Transport: t}}
}

// within makes the path between the nodes of a host.
func within(host string, id membership.NodeID, areaSize int) (mesh.Path, error) {
	t, err := shm.New(shm.Config{Cluster: host, Node: id.String(), Areas: negotiate.Areas, AreaSize: areaSize, Stream: kernel.Streamer()})
	return mesh.Path{Transport: t, NotHere: shm.ErrNotHere}, err
}

func listenShared(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenSHM(n, negotiate.AreaSize())
}

// listenRings makes what listenShared does without areas, so that all goes
// over links.
func listenRings(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenSHM(n, 0)
}

func listenSHM(n, areaSize int) (view membership.View, list []transport.Transport, end func() error, err error) {
	if view, _, err = names(n); err != nil {
		return view, nil, nil, err
	}
	for _, node := range view.Nodes {
		p, err := within("a host", node.ID, areaSize)
		if err != nil {
			return view, nil, nil, err
		}
		list = append(list, roads{p.Transport, []mesh.Path{p}})
	}
	return view, list, func() error { return nil }, nil
}

func listenTCP(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenAt(n, func(_ int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
		return beside(e, identity, false)
	})
}

func listenPlainTCP(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenAt(n, func(_ int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
		return beside(e, identity, true)
	})
}

// beside makes the path for bulk at the port of an endpoint, with two pipes.
func beside(e *quic.Endpoint, identity *pki.Identity, plain bool) ([]mesh.Path, error) {
	l, err := e.Listener()
	if err != nil {
		return nil, err
	}
	t, err := tcp.Listen(tcp.Config{Listener: l, Plain: plain, IdleTimeout: patience}, identity)
	return []mesh.Path{{Transport: t, Encrypted: !plain, Bulk: true, Pipes: 2}}, err
}

// listenMixed makes nodes of the hosts that hostOf tells: nodes of different
// clusters do not meet in memory.
func listenMixed(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenAt(n, func(rank int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
		p, err := within(hostOf(rank), identity.ID(), negotiate.AreaSize())
		if err != nil {
			return nil, err
		}
		bulk, err := beside(e, identity, false)
		return append([]mesh.Path{p}, bulk...), err
	})
}

// TestMediums: each goes the way that its name says.
func TestMediums(t *testing.T) {
	for _, test := range []struct {
		medium
		transport string
		encrypted bool
	}{
		{overMem, "mem", false},
		{overQUIC, "quic", true},
		{overShared, "shm", false},
		{overTCP, "quic+tcp", true},
		{overPlainTCP, "quic+tcp", false},
		{overMixed, "mixed", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.needs(t)
			for _, c := range test.cluster(t, 3, Config{}) {
				want, encrypted := test.transport, test.encrypted
				if test.name == overMixed.name && c.Rank() == 1 {
					want, encrypted = "quic+tcp", true // The two others are on the other host.
				}
				if c.Transport() != want || c.Encrypted() != encrypted {
					t.Errorf("rank %d: %s, encrypted: %v; want %s, %v", c.Rank(), c.Transport(), c.Encrypted(), want, encrypted)
				}
			}
		})
	}
}

// TestHostsAreChosenFor: ranks that share memory on each host, and not between
// hosts, choose plans that know this, and all choose alike. Others do not.
func TestHostsAreChosenFor(t *testing.T) {
	for _, test := range []struct {
		medium
		ranks int
		want  bool
	}{
		{overMixed, 4, true},
		{overMixed, 6, true},
		{overMixed, 2, false}, // each on a host of its own
		{overTCP, 4, false},
		{overMem, 4, false},
	} {
		t.Run(fmt.Sprintf("%s/ranks=%d", test.name, test.ranks), func(t *testing.T) {
			test.needs(t)
			comms := test.cluster(t, test.ranks, Config{})
			need := cost.Need{Collective: plan.AllReduce, Size: test.ranks, Bytes: 1 << 20}
			first := comms[0].book.Tuner().Choose(need)
			if got := first.Index >= len(plan.Algorithms(need.Collective)); got != test.want {
				t.Errorf("an all-reduce of 1 MiB by %s", first.Algorithm.Name)
			}
			for rank, c := range comms {
				if got := c.book.Tuner().Choose(need); got.Index != first.Index || got.Channels != first.Channels {
					t.Errorf("rank %d chooses %s on %d channels, rank 0 %s on %d", rank, got.Algorithm.Name, got.Channels, first.Algorithm.Name, first.Channels)
				}
			}
		})
	}
}
