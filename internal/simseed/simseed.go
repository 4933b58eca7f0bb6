// Package simseed runs the seed of a world over a simulated network, for tests.
//
// [Start] starts the seed, and [Seed.Join] joins a node. Both use QUIC: other transports need a real network. The methods may
// be called concurrently.
package simseed

import (
	"context"
	"errors"
	"net"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/server"
	"github.com/nexar-go/nexar/internal/testhook"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/sim"
)

// Port is the port of the seed, and of nodes, on their hosts.
const Port = 7000

// A Seed is the seed of a world, on the host "seed".
type Seed struct {
	token    pki.Token
	endpoint *quic.Endpoint
	server   *server.Server
}

// Start starts the seed of an elastic world of n nodes.
func Start(network *sim.Network, n int) (*Seed, error) {
	authority, err := pki.NewAuthority()
	if err != nil {
		return nil, err
	}
	joining, err := authority.Joining()
	if err != nil {
		return nil, err
	}
	packets, err := network.Host("seed").PacketConn(Port)
	if err != nil {
		return nil, err
	}
	s := &Seed{token: pki.NewToken()}
	if s.endpoint, err = quic.Listen(quic.Config{PacketConn: packets, Heartbeat: -1, NoWatch: true}); err != nil {
		return nil, err
	}
	tr, err := s.endpoint.Transport(joining)
	if err == nil {
		s.server, err = server.Serve(server.Config{Transport: tr, Authority: authority, Token: s.token, World: n, Elastic: true})
	}
	if err != nil {
		return nil, errors.Join(err, s.endpoint.Close())
	}
	return s, nil
}

// Join joins a node that sends and receives on packets. The node closes packets.
func (s *Seed) Join(ctx context.Context, packets net.PacketConn, cfg nexar.Config) (*nexar.Node, error) {
	cfg.Seeds, cfg.Token, cfg.Transports = []string{s.endpoint.Addr()}, s.token.Reveal(), []string{"quic"}
	return nexar.Join(testhook.WithPackets(ctx, packets), cfg)
}

// Close closes the seed.
func (s *Seed) Close() error { return errors.Join(s.server.Close(), s.endpoint.Close()) }
