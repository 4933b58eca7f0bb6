package worldtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/server"
	"github.com/nexar-go/nexar/internal/testhook"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/sim"
)

// A SimCluster is a seed, and a simulated network for nodes over QUIC, for tests in fake
// time.
type SimCluster struct {
	Network *sim.Network
	Beat    time.Duration   // HeartbeatInterval of the nodes; a tenth of HeartbeatTimeout
	Ctx     context.Context // cancelled by Cancel and Close

	stop   context.CancelFunc
	server *server.Server
	end    *quic.Endpoint
	token  pki.Token
}

// simNodePort is the port of the nodes and of the seed on their simulated hosts.
const simNodePort = 7000

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
		Beat: 100 * time.Millisecond, token: pki.NewToken(),
		Network: sim.New(sim.Config{Seed: int64(random), Delay: l.Delay, Jitter: l.Jitter, Reorder: l.Reorder, Corrupt: l.Corrupt}),
	}
	c.Ctx, c.stop = context.WithCancel(t.Context())
	ca, err := pki.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	packets, err := c.Network.Host("seed").PacketConn(simNodePort)
	if err == nil {
		c.end, err = quic.Listen(quic.Config{PacketConn: packets, Heartbeat: -1, NoWatch: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	tr, err := c.end.Transport(joining)
	if err == nil {
		c.server, err = server.Serve(server.Config{Transport: tr, Authority: ca, Token: c.token, World: n, Elastic: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Join starts a node on a host. It sets the fields of cfg that all tests share.
func (c *SimCluster) Join(host string, cfg nexar.Config) (*nexar.Node, error) {
	packets, err := c.Network.Host(host).PacketConn(simNodePort)
	if err != nil {
		return nil, err
	}
	cfg.Seeds, cfg.Token, cfg.Transports = []string{c.end.Addr()}, c.token.Reveal(), []string{"quic"}
	cfg.HeartbeatInterval, cfg.HeartbeatTimeout = c.Beat, 10*c.Beat
	return nexar.Join(testhook.WithPackets(c.Ctx, packets), cfg)
}

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
	c.server.Close()
	c.end.Close()
	c.Network.Close()
}
