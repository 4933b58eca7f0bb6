package worldtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testhook"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/transport/shm"
)

// A Medium is a way to connect the ranks of a world: transports and a placement on hosts.
type Medium struct {
	Name string
	Cost cost.Network // initial model

	listen   listener
	watches  int           // that each rank watches; 0 is the default
	idle     time.Duration // of links before they become pending again; 0 is never
	eager    bool
	topology topology.Topology
	relay    func(node string) mesh.RelayConfig // nil without relays
}

// OnDemand returns a medium without memory with most links pending. By default a rank watches six others
// and is watched by six, so in worlds of up to 13 ranks all are linked. Here each rank watches one other rank, and other
// links become pending again when they have been idle for a few milliseconds; see [World.AwaitPending].
func (m Medium) OnDemand() Medium {
	m.Name, m.watches, m.idle = m.Name+", links on demand", 1, 3*time.Millisecond
	return m
}

// IsOnDemand reports whether the medium is one of OnDemand.
func (m Medium) IsOnDemand() bool { return m.idle > 0 }

// Eager returns the medium with ranks that link themselves to all others when they join.
func (m Medium) Eager() Medium {
	m.Name, m.eager, m.watches = m.Name+", eager links", true, 1
	return m
}

// Sparse returns the medium with a topology, in the form that topology.Parse reads. Without relays only neighbors
// reach each other.
func (m Medium) Sparse(t testing.TB, name string) Medium {
	t.Helper()
	links, err := topology.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	m.Name, m.topology = m.Name+", "+name, links
	return m
}

// Relayed is Sparse with relays: the other ranks are reached through neighbors.
func (m Medium) Relayed(t testing.TB, name string) Medium {
	t.Helper()
	m = m.Sparse(t, name)
	ca := testpeer.NewCA(t)
	m.Name += ", relays"
	m.relay = func(node string) mesh.RelayConfig {
		creds := ca.Node(t, node)
		return mesh.RelayConfig{Server: creds.Server(), Client: creds.Client, Peer: creds.Peer}
	}
	return m
}

// addRelays gives each rank a relay and the path over it.
func (m Medium) addRelays(w *testhook.World) error {
	if m.relay == nil {
		return nil
	}
	for rank, n := range w.View.Nodes {
		cfg := m.relay(n.ID.String())
		cfg.Self = n.ID
		r, err := mesh.NewRelay(cfg)
		if err != nil {
			return err
		}
		w.Relays = append(w.Relays, r)
		w.Paths[rank] = append(w.Paths[rank], r.Path())
	}
	return nil
}

// Mem connects ranks by memory, as nexar.Local does, but with the ranks on several hosts.
func Mem() Medium {
	return Medium{Name: "mem", Cost: cost.Local(), listen: listenMem(negotiate.AreaSize())}
}

// MemLinks is Mem without shared memory: all bytes go over links.
func MemLinks() Medium {
	return Medium{Name: "mem without areas", Cost: cost.Local(), listen: listenMem(0)}
}

// MemHosts is MemLinks with two ranks on each host.
func MemHosts() Medium {
	return Medium{Name: "links between hosts", Cost: cost.Local(), listen: func(n int) (nodeSet, error) {
		s, err := listenMem(0)(n)
		for rank := range s.view.Nodes {
			s.view.Nodes[rank].Host = fmt.Sprint("host ", rank/2)
		}
		return s, err
	}}
}

// Sim connects ranks by a simulated network with small windows, latency and loss.
func Sim() Medium { return Medium{Name: "sim", Cost: cost.QUIC(), listen: listenSim} }

// QUIC connects ranks by QUIC over the loopback interface.
func QUIC() Medium {
	return Medium{Name: "quic", Cost: cost.QUIC(), listen: func(n int) (nodeSet, error) { return listenQUIC(n, nil) }}
}

// SHM connects ranks by shared memory of processes.
func SHM() Medium {
	return Medium{Name: "shm", Cost: cost.QUIC(), listen: listenSHM(negotiate.AreaSize())}
}

// SHMLinks is SHM without areas: all bytes go over links.
func SHMLinks() Medium {
	return Medium{Name: "shm without areas", Cost: cost.QUIC(), listen: listenSHM(0)}
}

// TLS connects ranks by QUIC, and by TLS over TCP for bulk.
func TLS() Medium { return Medium{Name: "tcp+tls", Cost: cost.QUIC(), listen: listenBulk(false)} }

// TCP connects ranks by QUIC, and by plain TCP for bulk.
func TCP() Medium { return Medium{Name: "tcp", Cost: cost.QUIC(), listen: listenBulk(true)} }

// Mixed connects ranks on the hosts of HostOf: by shared memory within a host, by TLS
// and QUIC between hosts.
func Mixed() Medium { return Medium{Name: "mixed", Cost: cost.QUIC(), listen: listenMixed} }

// MessageMedia returns the media with different paths for messages: pipes in memory, pipes
// with small windows, QUIC, TCP and shared memory; the last if [Brief].
func MessageMedia() []Medium { return Media(Mem(), Sim(), QUIC(), TCP(), SHM()) }

// Require skips the test if the machine does not support the medium, or fails it if
// NEXAR_REQUIRE says so.
func (m Medium) Require(t *testing.T) {
	t.Helper()
	if strings.HasPrefix(m.Name, "shm") || m.Name == Mixed().Name {
		err := shm.Supported()
		require.Have(t, "shm", err == nil, fmt.Sprint(err))
	}
}

// A World is a world of ranks in this process.
type World struct {
	Comms []*nexar.Comm
	Nodes []membership.Node

	network *testhook.World
	end     func() error
}

// World forms a world of n ranks, and closes it at the end of the test.
func (m Medium) World(t testing.TB, n int, cfg nexar.Config) *World {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	w, err := m.form(ctx, n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// Cluster returns the communicators of the ranks of a new World.
func (m Medium) Cluster(t testing.TB, n int, cfg nexar.Config) []*nexar.Comm {
	t.Helper()
	return m.World(t, n, cfg).Comms
}

// Form forms a world of n ranks. The caller must call closing at the end, unless err is not nil.
func (m Medium) Form(ctx context.Context, n int, cfg nexar.Config) (comms []*nexar.Comm, closing func() error, err error) {
	w, err := m.form(ctx, n, cfg)
	if err != nil {
		return nil, nil, err
	}
	return w.Comms, w.Close, nil
}

func (m Medium) form(ctx context.Context, n int, cfg nexar.Config) (*World, error) {
	if cfg.CollectiveTimeout == 0 {
		cfg.CollectiveTimeout = 3 * Patience
	}
	s, err := m.listen(n)
	if err != nil {
		return nil, err
	}
	w := &World{Nodes: s.view.Nodes, end: s.end}
	w.network = &testhook.World{
		View: s.view, Paths: s.paths, Cost: m.Cost, Pools: make([]*bufpool.Pool, n), Linked: make([]func() int, n),
		Topology: m.topology, Watches: m.watches, IdleTimeout: m.idle, HeartbeatTimeout: 10 * time.Second,
	}
	if err := m.addRelays(w.network); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if m.eager {
		cfg.Links = "eager"
	}
	if w.Comms, err = nexar.Local(testhook.WithWorld(ctx, w.network), n, cfg); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Close closes the ranks and their medium.
func (w *World) Close() error {
	err := ForEach(len(w.Comms), func(rank int) error { return w.Comms[rank].Close() })
	if len(w.Comms) == 0 {
		err = ForEach(len(w.Nodes), w.Kill)
	}
	// The clean-up functions keep w reachable until the parent test ends.
	clear(w.Comms)
	clear(w.network.Paths)
	clear(w.network.Pools)
	clear(w.network.Linked)
	return errors.Join(err, w.end())
}

// Kill closes the transports of a rank, without the goodbye of its links.
func (w *World) Kill(rank int) error {
	var errs []error
	for _, p := range w.network.Paths[rank] {
		errs = append(errs, p.Transport.Close())
	}
	return errors.Join(errs...)
}

// ID returns the node ID of a rank.
func (w *World) ID(rank int) nexar.NodeID { return nexar.NodeID(w.Nodes[rank].ID) }

// Addr returns the address of the node of a rank.
func (w *World) Addr(rank int) string { return w.Nodes[rank].Addrs[0] }

// Host returns the name of the host of a rank in a simulated network.
func (w *World) Host(rank int) string { return w.Nodes[rank].ID.String() }

// Links returns the pairs of ranks that are linked from the start: neighbors of a sparse topology or, in the full one, ranks that watch each
// other. others are the pairs of the full topology that are linked when an operation needs it.
func (w *World) Links() (watches, others [][2]int) {
	graph := membership.WatchGraph{Topology: w.network.Topology, Count: w.network.Watches}
	for a := range w.Nodes {
		for b := range a {
			switch {
			case graph.Connects(w.network.View, a, b):
				watches = append(watches, [2]int{a, b})
			case w.network.Topology.IsFull():
				others = append(others, [2]int{a, b})
			}
		}
	}
	return watches, others
}

// Linked returns the number of ranks that a rank is linked to.
func (w *World) Linked(rank int) int { return w.network.Linked[rank]() }

// AwaitPending waits until a rank of a medium of [Medium.OnDemand] has a pending link.
func (w *World) AwaitPending(t testing.TB, rank int) {
	t.Helper()
	for end := time.Now().Add(Patience); w.Linked(rank) == len(w.Comms)-1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("all links of rank %d stay connected while they are idle", rank)
		}
	}
}

// PoolInUse returns the number of buffers of the pool of a rank that are in use.
func (w *World) PoolInUse(rank int) (n int) {
	s := w.network.Pools[rank].Stats()
	for _, tier := range append(s.Tiers, s.Oversize) {
		n += tier.InUse
	}
	return n
}

// nodes returns a view of n nodes with keys, on the hosts of HostOf.
func nodes(n int) (view membership.View, keys []*pki.Key, err error) {
	view.Epoch = 7
	for rank := range n {
		key, err := pki.NewKey()
		if err != nil {
			return view, nil, err
		}
		keys = append(keys, key)
		view.Nodes = append(view.Nodes, membership.Node{
			ID: key.ID(), Addrs: []string{key.ID().String()}, Host: HostOf(rank), Name: fmt.Sprintf("test rank %d", rank),
		})
	}
	return view, keys, nil
}

// HostOf returns the host of a rank. Hosts have different numbers of ranks, so that
// hierarchical plans differ from flat ones.
func HostOf(rank int) string {
	return fmt.Sprint("host ", [...]int{0, 1, 0, 1, 1, 0, 2, 0, 2}[rank%9])
}
