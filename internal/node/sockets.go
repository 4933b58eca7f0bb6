package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/contain"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/tcp"
)

// The names of the built-in transports.
const (
	shmName  = "shm"
	tcpName  = "tcp"
	quicName = "quic"
)

// BuiltIn returns the names of the built-in transports.
func BuiltIn() []string { return []string{shmName, tcpName, quicName} }

// Transports says which transports a process may use.
type Transports struct {
	Names     []string            // of BuiltIn and of Factories
	Factories []transport.Factory // in the order of preference
	// Silence is how long a call of a transport from a factory may take before it
	// is abandoned.
	Silence time.Duration
}

func (t Transports) may(name string) bool { return slices.Contains(t.Names, name) }

// factories are those that may be used.
func (t Transports) factories() (list []transport.Factory) {
	for _, f := range t.Factories {
		if t.may(f.Name) {
			list = append(list, f)
		}
	}
	return list
}

// quic reports whether QUIC is used: if it may be, or where nothing else crosses hosts.
func (t Transports) quic() bool {
	return t.may(quicName) || !t.may(tcpName) && len(t.factories()) == 0
}

// sockets are what a node or a seed reaches others by, and is reached at: a UDP
// socket and a TCP port with the same number, or one of them alone, or neither
// where all transports come from factories.
type sockets struct {
	use      Transports
	log      *slog.Logger
	endpoint *quic.Endpoint // nil without UDP
	port     net.Listener   // TCP; nil if the endpoint has it, or without TCP
	addr     string         // of the socket or the port; empty without both
	joiners  []joiner       // for dialing seeds, in the order of preference
	lacks    []string       // transports that cannot be used, and why

	filtered atomic.Bool // UDP does not reach a seed that TCP reaches
}

// A joiner dials seeds with one transport.
type joiner struct {
	name  string
	dial  func(ctx context.Context, addr string) (transport.Conn, error)
	close func() error
}

// openSockets opens the sockets at an address, or takes packets in place of a UDP
// socket.
func openSockets(ctx context.Context, listen string, packets net.PacketConn, use Transports, conf quic.Config) (s *sockets, err error) {
	s = &sockets{use: use, log: conf.Log}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if use.quic() {
		conf.Addr, conf.PacketConn = listen, packets
		s.endpoint, err = quic.Listen(conf)
		if err != nil && (!use.may(tcpName) || errors.Is(err, syscall.EADDRINUSE)) {
			return s, err
		}
		if err != nil {
			s.lack(quicName, err)
		} else {
			s.addr = s.endpoint.Addr()
			s.joiners = append(s.joiners, joiner{name: quicName, dial: s.dialQUIC})
		}
	}
	if use.may(tcpName) && packets == nil {
		if s.endpoint == nil {
			if s.port, err = net.Listen("tcp", cmp.Or(listen, ":0")); err != nil {
				return s, fmt.Errorf("tcp: %w", err)
			}
			s.addr = s.port.Addr().String()
		}
		t, err := tcp.Listen(tcp.Config{DialOnly: true, Anonymous: true, MaxPipes: joinPipesMax, Log: s.log}, pki.Joining{})
		if err != nil {
			return s, err
		}
		s.joiners = append(s.joiners, joiner{tcpName, dialWith(t), t.Close})
	}
	for _, f := range use.factories() {
		t, err := s.start(ctx, f, s.env(listen, "", "", pki.Joining{}))
		if err != nil {
			s.lack(f.Name, err)
			continue
		}
		s.joiners = append(s.joiners, joiner{f.Name, dialWith(t), t.Close})
	}
	return s, nil
}

// joinPipesMax is how many pipes a peer has on a conn by which it joins.
const joinPipesMax = 2

func dialWith(t transport.Transport) func(context.Context, string) (transport.Conn, error) {
	return func(ctx context.Context, addr string) (transport.Conn, error) { return t.Dial(ctx, addr, "") }
}

func (s *sockets) dialQUIC(ctx context.Context, addr string) (transport.Conn, error) {
	c, err := s.endpoint.Dial(ctx, addr, pki.Joining{}.Client(""))
	if err != nil {
		return nil, err
	}
	return c, nil
}

// credentials are those of the built-in transports.
type credentials interface {
	Server() *tls.Config
	Client(peer string) *tls.Config
	Peer(state tls.ConnectionState) (string, error)
}

// env is what a factory is told.
func (s *sockets) env(listen, cluster, node string, c credentials) transport.Env {
	return transport.Env{
		Cluster: cluster, Node: node, Listen: listen, Log: s.log, Server: c.Server(), Client: c.Client, Peer: c.Peer,
	}
}

// start starts the transport of a factory, whose faults are contained.
func (s *sockets) start(ctx context.Context, f transport.Factory, env transport.Env) (transport.Transport, error) {
	return contain.Listen(ctx, f, env, contain.Config{Limit: s.use.Silence, Log: s.log})
}

// listenTCP returns the TCP port, which the caller closes.
func (s *sockets) listenTCP() (net.Listener, error) {
	if s.endpoint != nil {
		return s.endpoint.Listener()
	}
	l := s.port
	s.port = nil
	return l, nil
}

// lack notes that a transport cannot be used.
func (s *sockets) lack(name string, err error) {
	s.log.Warn("a transport cannot be used", "transport", name, "reason", err)
	s.lacks = append(s.lacks, fmt.Sprintf("%s: %v", name, strings.TrimPrefix(err.Error(), name+": ")))
}

// listensTo reports whether this process is reached over QUIC and over TCP.
func (s *sockets) listensTo(name string) bool {
	switch name {
	case quicName:
		return s.endpoint != nil && !s.filtered.Load()
	case tcpName:
		return s.use.may(tcpName) && (s.endpoint == nil || s.endpoint.Socket().Watched)
	}
	return s.use.may(name)
}

func (s *sockets) close() (err error) {
	for _, j := range s.joiners {
		if j.close != nil {
			err = errors.Join(err, j.close())
		}
	}
	if s.port != nil {
		err = errors.Join(err, s.port.Close())
	}
	if s.endpoint != nil {
		err = errors.Join(err, s.endpoint.Close())
	}
	return err
}

// fallbackDelay is how long a seed may take to answer over one transport before the
// next is dialed as well. Its conn is used only if the first transport fails.
const fallbackDelay = 2 * time.Second

// dialSeed connects to a seed by the first transport that reaches it. An address
// may name its transport, as "unix=ADDR".
func (s *sockets) dialSeed(ctx context.Context, addr string) (transport.Conn, error) {
	joiners := s.joiners
	if name, rest, named := strings.Cut(addr, "="); named {
		addr = rest
		joiners = slices.DeleteFunc(slices.Clone(joiners), func(j joiner) bool { return j.name != name })
	}
	if s.filtered.Load() {
		joiners = slices.DeleteFunc(slices.Clone(joiners), func(j joiner) bool { return j.name == quicName })
	}
	if len(joiners) == 0 {
		return nil, fmt.Errorf("no transport for the seed %q: this process has %s", addr, strings.Join(s.use.Names, ", "))
	}
	c, used, err := race(ctx, joiners, addr)
	if err == nil && joiners[0].name == quicName && used > 0 {
		return s.checkFiltered(ctx, joiners, addr, c)
	}
	return c, err
}

// checkFiltered decides whether UDP is filtered on the way to a seed that has
// answered over another transport only. It tries QUIC again, as the seed may have
// just started.
func (s *sockets) checkFiltered(ctx context.Context, joiners []joiner, addr string, c transport.Conn) (transport.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, fallbackDelay)
	defer cancel()
	again, err := joiners[0].dial(ctx, addr)
	if err == nil {
		c.Close()
		return again, nil
	}
	if !s.filtered.Swap(true) {
		s.log.Warn("a seed answers over another transport, but not over QUIC: UDP seems to be filtered, and this process goes on without it",
			"seed", addr, "over", c.RemoteAddr(), "reason", err)
		s.lacks = append(s.lacks, "quic: UDP seems to be filtered")
	}
	return c, nil
}

// race dials an address with the transports in turn, each fallbackDelay after the one
// before or when that has failed, and returns the conn of the first one that
// succeeds before those in front of it have. Errors that only the peer can have
// caused end the race.
func race(ctx context.Context, joiners []joiner, addr string) (c transport.Conn, used int, err error) {
	if len(joiners) == 1 {
		c, err = joiners[0].dial(ctx, addr)
		return c, 0, err
	}
	first, cancelFirst := context.WithCancel(ctx)
	defer cancelFirst()
	rest, cancelRest := context.WithCancel(ctx)
	var others sync.WaitGroup
	type result struct {
		c    transport.Conn
		used int
		err  error
	}
	failed := make(chan struct{})
	backup := make(chan result, 1)
	others.Go(func() {
		select {
		case <-failed:
		case <-time.After(fallbackDelay):
		case <-rest.Done():
			backup <- result{err: rest.Err()}
			return
		}
		c, used, err := race(rest, joiners[1:], addr)
		backup <- result{c, used + 1, err}
	})
	defer others.Wait()
	c, err = joiners[0].dial(first, addr)
	if err == nil || ctx.Err() != nil || errors.Is(err, transport.ErrBusy) || errors.Is(err, transport.ErrIdentity) {
		cancelRest()
		if b := <-backup; b.err == nil {
			b.c.Close()
		}
		return c, 0, err
	}
	close(failed)
	defer cancelRest()
	b := <-backup
	if b.err != nil {
		return nil, 0, err // That of the transport which is preferred says most.
	}
	return b.c, b.used, nil
}
