package worldtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/simseed"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// A SimCluster is a seed, and a simulated network for nodes over QUIC, for tests in fake
// time.
type SimCluster struct {
	Network *sim.Network
	Beat    time.Duration   // HeartbeatInterval of the nodes; a tenth of HeartbeatTimeout
	Ctx     context.Context // cancelled by Cancel and Close

	stop context.CancelFunc
	seed *simseed.Seed
}

// SimClusterLink returns the settings of all links of a SimCluster.
func SimClusterLink() sim.Link {
	return sim.Link{Delay: 2 * time.Millisecond, Jitter: time.Millisecond, Reorder: 0.05, Corrupt: 0.02}
}

// NewSimCluster starts a seed for a world of n nodes on the host "seed". random is the seed
// of the random numbers of the network.
func NewSimCluster(t *testing.T, random uint64, n int) *SimCluster {
	t.Helper()
	l := SimClusterLink()
	c := &SimCluster{
		Beat:    100 * time.Millisecond,
		Network: sim.New(sim.Config{Seed: int64(random), Delay: l.Delay, Jitter: l.Jitter, Reorder: l.Reorder, Corrupt: l.Corrupt}),
	}
	c.Ctx, c.stop = context.WithCancel(t.Context())
	var err error
	if c.seed, err = simseed.Start(c.Network, n); err != nil {
		t.Fatal(err)
	}
	return c
}

// Join starts a node on a host. It sets the fields of cfg that all tests share.
func (c *SimCluster) Join(host string, cfg nexar.Config) (*nexar.Node, error) {
	packets, err := c.Network.Host(host).PacketConn(simseed.Port)
	if err != nil {
		return nil, err
	}
	cfg.HeartbeatInterval, cfg.HeartbeatTimeout = c.Beat, 10*c.Beat
	return c.seed.Join(c.Ctx, packets, cfg)
}

// WireName is the name of the transport of JoinWire.
const WireName = "wire"

// wirePort is its port on each host.
const wirePort = 7001

// JoinWire is Join for a node whose links are over pipes of the network, which [sim.Network.CutAfter] cuts, or have their payloads there,
// beside QUIC. As TCP, they refuse connections to a process that has ended.
func (c *SimCluster) JoinWire(host string, beside bool, cfg nexar.Config) (*nexar.Node, error) {
	packets, err := c.Network.Host(host).PacketConn(simseed.Port)
	if err != nil {
		return nil, err
	}
	cfg.HeartbeatInterval, cfg.HeartbeatTimeout = c.Beat, 10*c.Beat
	f := transport.Factory{Name: WireName, Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
		if env.Node == "" {
			return nil, errors.ErrUnsupported
		}
		t, err := c.Network.Host(host).ListenAs(wirePort, env.Node)
		return wire{t}, err
	}}
	return c.seed.JoinOver(c.Ctx, packets, f, beside, cfg)
}

type wire struct{ transport.Transport }

func (wire) Name() string { return WireName }

// JoinHosts joins n nodes, with rank r on the host "host<r>".
func (c *SimCluster) JoinHosts(t testing.TB, n int) []*nexar.Node {
	t.Helper()
	nodes := make([]*nexar.Node, n)
	if err := ForEach(n, func(rank int) (err error) {
		nodes[rank], err = c.Join(fmt.Sprint("host", rank), nexar.Config{Rank: &rank, RecoveryTimeout: 36 * time.Second})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// Cancel cancels Ctx, the context of all nodes.
func (c *SimCluster) Cancel() { c.stop() }

// Close cancels Ctx and closes the seed and the network. Close the nodes first.
func (c *SimCluster) Close() {
	c.stop()
	c.seed.Close()
	c.Network.Close()
}
