package worldtest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// InFakeTime calls f in a synctest bubble with a world of n ranks over links of 1 ms and
// 100 MB/s. Each rank has its own host, with the name of its node.
func InFakeTime(t *testing.T, n int, f func(t *testing.T, w *World, network *sim.Network)) {
	InFakeTimeWith(t, n, nexar.Config{}, f)
}

// InFakeTimeWith is InFakeTime with settings of the ranks.
func InFakeTimeWith(t *testing.T, n int, cfg nexar.Config, f func(t *testing.T, w *World, network *sim.Network)) {
	synctest.Test(t, func(t *testing.T) {
		network := sim.New(sim.Config{Delay: time.Millisecond, Rate: 100_000_000, Window: 4 << 20})
		slow := Medium{Name: "slow", Cost: cost.QUIC(), listen: func(n int) (nodeSet, error) { return listenOn(network, n) }}
		f(t, slow.World(t, n, cfg), network)
	})
}

// InFakeTimeSparse is InFakeTime with a sparse topology, relays, and transports that refuse connections of a process
// that has ended, so that broken connections are replaced. restore has the settings of the links between hosts.
func InFakeTimeSparse(t *testing.T, n int, topology string, f func(t *testing.T, w *World, network *sim.Network, restore sim.Link)) {
	inFakeTimeOver(t, n, func(m Medium) Medium { return m.Relayed(t, topology) }, f)
}

// InFakeTimeFull is InFakeTimeSparse with the full topology and links on demand. Each rank watches some others.
func InFakeTimeFull(t *testing.T, n, watches int, f func(t *testing.T, w *World, network *sim.Network, restore sim.Link)) {
	inFakeTimeOver(t, n, func(m Medium) Medium { m.watches = watches; return m }, f)
}

func inFakeTimeOver(t *testing.T, n int, configure func(Medium) Medium, f func(t *testing.T, w *World, network *sim.Network, restore sim.Link)) {
	synctest.Test(t, func(t *testing.T) {
		restore := sim.Link{Delay: time.Millisecond, Rate: 100_000_000}
		network := sim.New(sim.Config{Delay: restore.Delay, Rate: restore.Rate, Window: 4 << 20})
		slow := Medium{Name: "slow", Cost: cost.QUIC(), listen: func(n int) (nodeSet, error) {
			return listenOn(network, n)
		}}
		f(t, configure(slow).World(t, n, nexar.Config{}), network, restore)
	})
}

// listenSim returns nodes whose pipes have small windows, delay and loss, so that tests that rely
// on buffering or on speed fail.
func listenSim(n int) (nodeSet, error) {
	return listenOn(sim.New(sim.Config{
		Seed: 1, Delay: 20 * time.Microsecond, Jitter: 50 * time.Microsecond, Loss: 0.002, Window: 32 << 10,
	}), n)
}

// listenOn returns n nodes, each on its own host of a simulated network.
func listenOn(network *sim.Network, n int) (nodeSet, error) {
	s, err := listenEach(n, func(node membership.Node) (mesh.Path, error) {
		t, err := network.Host(node.ID.String()).Listen(simPort)
		return mesh.Path{Transport: namedTransport{t}}, err
	})
	s.end = network.Close
	if err != nil {
		err = errors.Join(err, network.Close())
	}
	return s, err
}

// simPort is the port of all nodes. The name of a host with simSuffix is an address of package sim.
const (
	simPort   = 7000
	simSuffix = ":7000"
)

// A namedTransport addresses nodes by the names of their simulated hosts.
type namedTransport struct{ transport.Transport }

func (n namedTransport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := n.Transport.Dial(ctx, addr+simSuffix, peer+simSuffix)
	if err != nil {
		return nil, err
	}
	return namedConn{c}, nil
}

func (n namedTransport) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := n.Transport.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return namedConn{c}, nil
}

type namedConn struct{ transport.Conn }

func (c namedConn) Peer() string { return strings.TrimSuffix(c.Conn.Peer(), simSuffix) }
