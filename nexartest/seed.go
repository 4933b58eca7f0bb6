package nexartest

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/server"
	"github.com/nexar-go/nexar/internal/testhook"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/sim"
)

// port is the port of the seed and of all nodes on their hosts.
const port = 7000

// A seed is the seed of a World, at the host "seed".
type seed struct {
	token    pki.Token
	endpoint *quic.Endpoint
	server   *server.Server
}

// startSeed starts the seed of an elastic world of n nodes.
func startSeed(network *sim.Network, n int) (*seed, error) {
	authority, err := pki.NewAuthority()
	if err != nil {
		return nil, err
	}
	joining, err := authority.Joining()
	if err != nil {
		return nil, err
	}
	conn, err := network.Host("seed").PacketConn(port)
	if err != nil {
		return nil, err
	}
	s := &seed{token: pki.NewToken()}
	if s.endpoint, err = quic.Listen(quic.Config{PacketConn: conn, Heartbeat: -1, NoWatch: true}); err != nil {
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

// join joins a node that sends and receives on p. The node closes p.
func (s *seed) join(ctx context.Context, p *packets, cfg nexar.Config) (*nexar.Node, error) {
	cfg.Seeds, cfg.Token, cfg.Transports = []string{s.endpoint.Addr()}, s.token.Reveal(), []string{"quic"}
	return nexar.Join(testhook.WithPackets(ctx, p), cfg)
}

// close closes the seed.
func (s *seed) close() error {
	return errors.Join(s.server.Close(), s.endpoint.Close())
}

// packets is the socket of a node, whose reads and writes block while the node is stopped.
type packets struct {
	net.PacketConn

	mu      sync.Mutex
	stopped chan struct{} // closed by resume; nil while the node runs
}

func (p *packets) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == nil {
		p.stopped = make(chan struct{})
	}
}

func (p *packets) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped != nil {
		close(p.stopped)
		p.stopped = nil
	}
}

// wait returns when the node is not stopped.
func (p *packets) wait() {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	n, addr, err := p.PacketConn.ReadFrom(b)
	p.wait()
	return n, addr, err
}

func (p *packets) WriteTo(b []byte, addr net.Addr) (int, error) {
	p.wait()
	return p.PacketConn.WriteTo(b, addr)
}

// SetReadBuffer does nothing. quic-go expects it of a UDP socket.
func (p *packets) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing. quic-go expects it of a UDP socket.
func (p *packets) SetWriteBuffer(int) error { return nil }
