// Package simseed runs the seed of a world over a simulated network, for tests.
//
// [Start] starts the seed, and [Seed.Join] joins a node. Both use QUIC; [Seed.JoinOver] joins a node with another transport. The methods may
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
	"github.com/nexar-go/nexar/transport"
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

// joinsName is the name of the transport of [Seed.JoinOver].
const joinsName = "joins"

// JoinOver is Join for a node whose links are over the transport of a factory, or have their payloads there, beside QUIC.
func (s *Seed) JoinOver(ctx context.Context, packets net.PacketConn, f transport.Factory, beside bool, cfg nexar.Config) (*nexar.Node, error) {
	cfg.Token = s.token.Reveal()
	if beside {
		cfg.Seeds, cfg.Transports, cfg.Factories = []string{s.endpoint.Addr()}, []string{f.Name, "quic"}, []transport.Factory{f}
		return nexar.Join(testhook.WithBulk(testhook.WithPackets(ctx, packets), f.Name), cfg)
	}
	joins := transport.Factory{Name: joinsName, Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
		if env.Node != "" {
			return nil, errors.ErrUnsupported
		}
		endpoint, err := quic.Listen(quic.Config{PacketConn: packets, Heartbeat: -1, NoWatch: true})
		return joining{endpoint}, err
	}}
	cfg.Seeds, cfg.Transports, cfg.Factories = []string{joinsName + "=" + s.endpoint.Addr()}, []string{joinsName, f.Name}, []transport.Factory{joins, f}
	return nexar.Join(ctx, cfg)
}

// A joining transport dials the seed, and nothing else.
type joining struct{ *quic.Endpoint }

func (joining) Name() string { return joinsName }

func (j joining) Dial(ctx context.Context, addr, _ string) (transport.Conn, error) {
	return j.Endpoint.Dial(ctx, addr, pki.Joining{}.Client(""))
}

func (joining) Accept(context.Context) (transport.Conn, error) { return nil, errors.ErrUnsupported }

// Close closes the seed.
func (s *Seed) Close() error { return errors.Join(s.server.Close(), s.endpoint.Close()) }
