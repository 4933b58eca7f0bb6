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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/internal/host"
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

// Transports selects the transports of a process.
type Transports struct {
	Names     []string            // names from BuiltIn and Factories
	Factories []transport.Factory // in order of preference
	// PeerTimeout is the heartbeat timeout, which factories get in Env.PeerTimeout.
	PeerTimeout time.Duration
	// Roots are the CAs of the user that a seed must belong to; nil: any seed.
	Roots *pki.Roots
	// Warned says that another process of this host warns if UDP is filtered.
	Warned bool
}

func (t Transports) allows(name string) bool { return slices.Contains(t.Names, name) }

// factories returns the factories that may be used.
func (t Transports) factories() (list []transport.Factory) {
	for _, f := range t.Factories {
		if t.allows(f.Name) {
			list = append(list, f)
		}
	}
	return list
}

// quic reports whether QUIC is used: if it is allowed, or if no other transport crosses hosts.
func (t Transports) quic() bool {
	return t.allows(quicName) || !t.allows(tcpName) && len(t.factories()) == 0
}

// sockets are the sockets of a node or a seed: a UDP socket and a TCP port with the same
// number, or one of them, or neither if all transports are from factories.
type sockets struct {
	use      Transports
	log      *slog.Logger
	endpoint *quic.Endpoint // nil without UDP
	port     net.Listener   // TCP; nil if the endpoint has it, or without TCP
	replaced bool           // packets of a program replace the UDP socket
	addr     string         // of the UDP socket or the TCP port; empty without both
	dialers  []seedDialer   // in order of preference

	missing     []string    // names of transports that cannot be used
	unavailable []string    // the same, each with the reason
	filtered    atomic.Bool // UDP does not reach a seed that TCP reaches
}

// openSockets opens the sockets at an address. packets, if not nil, replaces the UDP socket.
func openSockets(ctx context.Context, listen string, packets net.PacketConn, use Transports, conf quic.Config) (s *sockets, err error) {
	s = &sockets{use: use, log: conf.Log, replaced: packets != nil}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if packets == nil {
		if err := host.CheckLoopback(listen); err != nil {
			return s, err
		}
	}
	if use.quic() {
		conf.Addr, conf.PacketConn = listen, packets
		s.endpoint, err = quic.Listen(conf)
		if err != nil && (!use.allows(tcpName) || errors.Is(err, syscall.EADDRINUSE)) {
			return s, err
		}
		if err != nil {
			s.noteUnavailable(quicName, err)
		} else {
			s.addr = s.endpoint.Addr()
			s.dialers = append(s.dialers, seedDialer{name: quicName, dial: s.dialQUIC})
		}
	}
	if use.allows(tcpName) && packets == nil {
		if s.endpoint == nil {
			if s.port, err = net.Listen("tcp", cmp.Or(listen, ":0")); err != nil {
				return s, fmt.Errorf("tcp: %w", err)
			}
			s.addr = s.port.Addr().String()
		}
		t, err := tcp.Listen(tcp.Config{DialOnly: true, Anonymous: true, MaxPipes: joinPipesMax, Log: s.log}, pki.Joining{Roots: use.Roots})
		if err != nil {
			return s, err
		}
		s.dialers = append(s.dialers, seedDialer{tcpName, dialWith(t), t.Close})
	}
	for _, f := range use.factories() {
		t, err := start(ctx, f, s.env(listen, "", "", pki.Joining{Roots: use.Roots}))
		if err != nil {
			s.noteUnavailable(f.Name, err)
			continue
		}
		s.dialers = append(s.dialers, seedDialer{f.Name, dialWith(t), t.Close})
	}
	return s, nil
}

// joinPipesMax is the number of pipes of a peer on a conn for joining.
const joinPipesMax = 2

func dialWith(t transport.Transport) func(context.Context, string, func()) (transport.Conn, error) {
	return func(ctx context.Context, addr string, _ func()) (transport.Conn, error) { return t.Dial(ctx, addr, "") }
}

func (s *sockets) dialQUIC(ctx context.Context, addr string, answered func()) (transport.Conn, error) {
	conf := pki.Joining{Roots: s.use.Roots}.Client("")
	verify := conf.VerifyConnection
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		answered() // with its certificate
		if verify != nil {
			return verify(state)
		}
		return nil
	}
	c, err := s.endpoint.Dial(ctx, addr, conf)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// env returns the parameters of a factory.
func (s *sockets) env(listen, cluster, node string, c quic.Credentials) transport.Env {
	return transport.Env{
		Cluster: cluster, Node: node, Listen: listen, Log: s.log, Server: c.Server(), Client: c.Client, Peer: c.Peer,
		PeerTimeout: s.use.PeerTimeout,
	}
}

// start starts the transport of a factory.
func start(ctx context.Context, f transport.Factory, env transport.Env) (transport.Transport, error) {
	t, err := f.Listen(ctx, env)
	if err == nil && t.Name() != f.Name { // Peers look for the name of the factory.
		err = errors.Join(fmt.Errorf("the transport has the name %q: want %q, the name of its factory", t.Name(), f.Name), t.Close())
		t = nil
	}
	return t, err
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

// noteUnavailable records that a transport cannot be used, and logs the transports that are
// used instead. It warns unless the operating system has no such transport, once for a reason: a transport is started
// for joining and for the node, which may try to join several times.
func (s *sockets) noteUnavailable(name string, err error) {
	text := fmt.Sprintf("%s: %v", name, strings.TrimPrefix(err.Error(), name+": "))
	if slices.Contains(s.unavailable, text) {
		return
	}
	s.unavailable = append(s.unavailable, text)
	level := slog.LevelWarn
	if errors.Is(err, errors.ErrUnsupported) {
		level = slog.LevelInfo
	}
	s.missing = append(s.missing, name)
	instead := slices.DeleteFunc(slices.Clone(s.use.Names), func(other string) bool { return slices.Contains(s.missing, other) })
	s.log.Log(context.Background(), level, "a transport cannot be used", "transport", name, "reason", err, "instead", cmp.Or(strings.Join(instead, ", "), "none"))
}

// listensTo reports whether peers can reach this process over a built-in transport.
func (s *sockets) listensTo(name string) bool {
	switch name {
	case quicName:
		return s.endpoint != nil && !s.filtered.Load()
	case tcpName:
		return s.use.allows(tcpName) && (s.endpoint == nil || s.endpoint.Socket().Watched)
	}
	return s.use.allows(name)
}

func (s *sockets) close() (err error) {
	for _, j := range s.dialers {
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

// A seedDialer dials seeds with one transport.
type seedDialer struct {
	name string
	// dial may call answered when the seed has answered, before the conn is complete.
	dial  func(ctx context.Context, addr string, answered func()) (transport.Conn, error)
	close func() error
}

// graceMin is the least time for a seed to answer over a preferred transport after it has answered over another one.
const graceMin = 2 * eyeballs.Delay

// isRefusal reports whether only the peer can have caused an error.
func isRefusal(err error) bool {
	return errors.Is(err, transport.ErrBusy) || errors.Is(err, transport.ErrIdentity)
}

// dialFirst dials an address of a seed with several transports, and returns the index of the one that has won. errs has the errors by
// transport. err is that of the first one, unless the seed has refused this process over another one.
func dialFirst(ctx context.Context, dialers []seedDialer, addr string) (winner int, c transport.Conn, errs []error, err error) {
	r := eyeballs.Race[transport.Conn]{
		Discard:   func(c transport.Conn) { c.Close() },
		Grace:     func(took time.Duration) time.Duration { return max(graceMin, 2*took) },
		IsRefusal: isRefusal,
	}
	for _, d := range dialers {
		r.Attempts = append(r.Attempts, func(ctx context.Context, answered func()) (transport.Conn, error) { return d.dial(ctx, addr, answered) })
	}
	if winner, c, errs = r.Run(ctx); winner < 0 {
		return winner, nil, errs, errs[max(0, slices.IndexFunc(errs, isRefusal))]
	}
	return winner, c, errs, nil
}

// dialSeed connects to a seed by the first transport that reaches it. An address
// may name its transport, as in "unix=ADDR".
func (s *sockets) dialSeed(ctx context.Context, addr string) (transport.Conn, error) {
	dialers, addr := s.dialersOf(addr)
	if len(dialers) == 0 {
		return nil, fmt.Errorf("no transport for the seed %q: this process has %s", addr, strings.Join(s.use.Names, ", "))
	}
	winner, c, errs, err := dialFirst(ctx, dialers, addr)
	if err == nil && dialers[0].name == quicName && winner > 0 {
		return s.checkFiltered(ctx, dialers[0], addr, errs[0], dialers[winner].name, c)
	}
	return c, err
}

// dialersOf returns the dialers for the address of a seed, and that address without the name of a
// transport.
func (s *sockets) dialersOf(addr string) (list []seedDialer, rest string) {
	name, rest, named := strings.Cut(addr, "=")
	if !named {
		rest = addr
	}
	return slices.DeleteFunc(slices.Clone(s.dialers), func(d seedDialer) bool {
		return named && d.name != name || d.name == quicName && s.filtered.Load()
	}), rest
}

// againMax bounds the second attempt to reach a seed over QUIC.
const againMax = 4 * graceMin

// checkFiltered decides whether UDP is filtered between this process and a seed that has
// answered over another transport only. If QUIC has failed before, it is tried again, since the seed
// may have just started. The process goes on without QUIC if UDP is filtered, and warns once, or
// once on this host if nexar run has started it.
func (s *sockets) checkFiltered(ctx context.Context, quic seedDialer, addr string, failed error, instead string, c transport.Conn) (transport.Conn, error) {
	if failed != nil {
		again, cancel := context.WithTimeout(ctx, againMax)
		defer cancel()
		better, err := quic.dial(again, addr, func() {})
		if err == nil {
			c.Close()
			return better, nil
		}
		failed = err
	}
	if ctx.Err() != nil || s.filtered.Swap(true) {
		return c, nil
	}
	level := slog.LevelWarn
	if s.use.Warned {
		level = slog.LevelInfo
	}
	reason := "no answer"
	if failed != nil {
		reason = failed.Error()
	}
	if instead == tcpName {
		instead = "TCP"
	}
	s.log.Log(context.Background(), level, fmt.Sprintf("UDP does not pass to the seed %s: this process uses %s", addr, instead), "reason", reason)
	s.unavailable = append(s.unavailable, "quic: UDP does not pass to the seed "+addr)
	return c, nil
}
