// Package quic is the transport over QUIC: control, small messages, and
// whatever has to cross a network that loses packets.
//
// Most programs call three things. Listen opens the one UDP socket that a
// node uses for all its connections. Endpoint.Dial connects with an explicit
// TLS configuration, as a node does that joins and has no certificate yet.
// Endpoint.Transport starts to accept, and dials peers by their identity: what
// it returns is a transport.Transport, and what is promised there is kept here.
//
// A pipe is a QUIC stream. The receive window of a connection is the sum of
// the windows of its pipes, so a pipe that nobody reads never delays another.
//
// QUIC says nothing when a process is killed, because UDP does not. Therefore
// an Endpoint also listens on TCP, at the same address and port, and the two
// ends of a watched connection hold an idle TCP connection beside it: the
// kernel closes it the moment the process is gone (watch.go). Silence of a
// host or of the network is noticed by heartbeats instead. The port can be
// shared with a transport over TCP (Endpoint.Listener).
//
// Whatever fails is reported with one of transport's errors and the reason in
// the text. A packet that the system refuses to send counts as lost, not as
// the end of the connection.
//
// All methods may be called by several goroutines, save those of a single
// pipe, for which package transport sets the rule.
package quic

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// Config says how an Endpoint works. The zero value listens at any port of
// all addresses, IPv4 and IPv6.
type Config struct {
	// Addr is the UDP and TCP address to listen at, "host:port". An empty
	// host is every address, an empty or zero port any free one.
	Addr string

	// PacketConn is used in place of a socket at Addr, and closed by
	// Endpoint.Close. One that is no UDP socket cannot be watched over TCP.
	PacketConn net.PacketConn

	// Log gets what an operator should know. Nil discards it.
	Log *slog.Logger

	// PipeWindow is how many bytes of a pipe may wait for their reader. The
	// peer can make this side keep as much for each of MaxPipes. Default 8 MiB.
	PipeWindow int

	// MaxPipes is how many pipes a peer may have open on a connection. A
	// further OpenPipe waits. Default 64.
	MaxPipes int

	// Heartbeat is how often an otherwise idle connection is tried. Default
	// one second. Negative: never, and silence never ends a connection.
	Heartbeat time.Duration

	// IdleTimeout is how long a peer may say nothing at all before it counts
	// as gone. It starts at the first heartbeat that is not answered.
	// Default 5 s.
	IdleTimeout time.Duration

	// Heartbeats decides for a single connection whether it has heartbeats,
	// by the address of its peer. It is called before the handshake, on both
	// sides, and one side that says yes is enough. Nil: every connection.
	Heartbeats func(addr string) bool

	// NoWatch does without the TCP port, in both directions.
	NoWatch bool

	// Watch decides for a connection that this side dialed whether its peer
	// is watched from the start. Conn.Watch can do so later. Nil: every peer.
	Watch func(peer string) bool

	// HandshakeTimeout is how long a handshake may stand still. One that
	// moves may take twice as long. Default 5 s.
	HandshakeTimeout time.Duration

	// MaxHandshakes is how many incoming connections, over UDP and TCP together, may
	// be unauthenticated. Beyond it the address with the most of them loses its oldest
	// one (internal/admission). From an eighth of it on, QUIC
	// clients must prove their address. Default 512.
	MaxHandshakes int

	// PacketSize is the size of the first packets of a connection, without
	// the headers of UDP and IP. A path that cannot carry them fails to
	// connect. Default: 1452, the largest, on loopback, else 1200, the
	// smallest. Larger ones are found by probing.
	PacketSize int
}

func (cfg Config) withDefaults() Config {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.PipeWindow <= 0 {
		cfg.PipeWindow = 8 << 20
	}
	if cfg.MaxPipes <= 0 {
		cfg.MaxPipes = 64
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = time.Second
	}
	if cfg.IdleTimeout <= 0 {
		cfg.IdleTimeout = 5 * time.Second
	}
	if cfg.HandshakeTimeout <= 0 {
		cfg.HandshakeTimeout = 5 * time.Second
	}
	if cfg.MaxHandshakes <= 0 {
		cfg.MaxHandshakes = 512
	}
	return cfg
}

// An Endpoint is the place of a node in the network: one UDP socket for all
// connections, in and out, and the TCP port by which peers watch each other.
type Endpoint struct {
	cfg     Config
	addr    string
	packets net.PacketConn
	quic    *quicgo.Transport
	watch   *watchServer // nil without a TCP port
	dials   dials
	scratch sync.Pool // *[scratchBytes]byte, held only while a pipe is read

	handshakes handshakes

	acceptorIdle time.Duration // how long a goroutine waits for a connection

	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	transport *Transport
	conns     map[*Conn]struct{}

	// explicit counts the goroutines of connections without a Transport.
	explicit sync.WaitGroup
	shut     sync.Once
}

// Listen opens the socket of a node. It accepts no connections before
// Transport is called.
func Listen(cfg Config) (*Endpoint, error) {
	cfg = cfg.withDefaults()
	packets, listener, err := bind(cfg)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		cfg:          cfg,
		addr:         plainAddr(packets.LocalAddr()),
		conns:        make(map[*Conn]struct{}),
		acceptorIdle: 10 * time.Second,
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.scratch.New = func() any { return new([scratchBytes]byte) }
	e.handshakes.admission = admission.NewGate(admission.Limits{Max: cfg.MaxHandshakes})
	e.handshakes.refusals = &refusals{log: cfg.Log}
	e.handshakes.max = 2 * int64(cfg.MaxHandshakes)
	e.packets = e.prepare(packets)
	e.quic = &quicgo.Transport{
		Conn:                e.packets,
		StatelessResetKey:   new(quicgo.StatelessResetKey),
		VerifySourceAddress: e.handshakes.needsRetry,
		ConnContext:         e.handshakes.enter,
	}
	rand.Read(e.quic.StatelessResetKey[:])
	if listener != nil {
		e.watch = serveWatch(listener, e.handshakes.admission, e.handshakes.refusals, cfg.Log)
	}
	return e, nil
}

// Addr is the address of the socket. Its host may be unspecified.
func (e *Endpoint) Addr() string { return e.addr }

// Dial connects to addr with an explicit TLS configuration. What the peer has
// to prove is up to conf alone; the Peer of the Conn is its address. Dial
// returns when the peer has accepted, with ErrIdentity when either side does
// not accept the other's certificate. It does not try again.
//
// The Conn belongs to the Endpoint: closing a Transport does not end it.
func (e *Endpoint) Dial(ctx context.Context, addr string, conf *tls.Config) (*Conn, error) {
	if conf == nil {
		return nil, dialError(addr, errors.New("no TLS configuration"))
	}
	qc, err := e.dial(ctx, addr, conf)
	if err != nil {
		return nil, err
	}
	return e.adopt(qc, nil, plainAddr(qc.RemoteAddr()), true)
}

// Close ends all connections, says so to their peers, closes the socket and
// waits until every goroutine has ended.
func (e *Endpoint) Close() error {
	var err error
	e.shut.Do(func() { err = e.shutdown() })
	return err
}

func (e *Endpoint) shutdown() error {
	e.mu.Lock()
	e.closed = true
	t := e.transport
	e.mu.Unlock()

	e.cancel()
	if t != nil {
		t.Close()
	}
	e.closeConns(func(*Conn) bool { return true })
	e.explicit.Wait()
	e.dials.wait()
	if e.watch != nil {
		e.watch.close()
	}
	err := e.quic.Close()
	if cerr := e.packets.Close(); err == nil && !errors.Is(cerr, net.ErrClosed) {
		err = cerr
	}
	e.handshakes.wait()
	return err
}

// adopt makes a Conn of a QUIC connection whose handshake is over. It belongs
// to t, or to the endpoint alone.
func (e *Endpoint) adopt(qc *quicgo.Conn, t *Transport, peer string, dialed bool) (*Conn, error) {
	c := &Conn{
		end:       e,
		owner:     t,
		qc:        qc,
		peer:      peer,
		remote:    plainAddr(qc.RemoteAddr()),
		accepting: make(chan struct{}, 1),
	}
	if e.watch != nil {
		var err error
		if c.keys, err = deriveWatchKeys(qc.ConnectionState().TLS, dialed); err != nil {
			qc.CloseWithError(codeRefused, err.Error())
			return nil, fmt.Errorf("quic: %s: %w", c.remote, err)
		}
	}

	e.mu.Lock()
	if e.closed || t != nil && t.closing {
		e.mu.Unlock()
		qc.CloseWithError(codeClosed, "closed")
		return nil, transport.ErrClosed
	}
	e.conns[c] = struct{}{}
	c.group().Add(1)
	e.mu.Unlock()

	if c.keys != nil {
		e.watch.add(c)
	}
	context.AfterFunc(qc.Context(), c.ended)
	if c.keys != nil && (e.cfg.Watch == nil || e.cfg.Watch(peer)) {
		c.beginWatch(dialed)
	}
	return c, nil
}

// closeConns closes the connections that which says, all at once.
func (e *Endpoint) closeConns(which func(*Conn) bool) {
	e.mu.Lock()
	var wg sync.WaitGroup
	for c := range e.conns {
		if which(c) {
			wg.Go(func() { c.Close() })
		}
	}
	e.mu.Unlock()
	wg.Wait()
}

// quicConfig is the configuration of a connection to remote.
func (e *Endpoint) quicConfig(remote netip.AddrPort) *quicgo.Config {
	window := uint64(e.cfg.PipeWindow)
	conf := &quicgo.Config{
		HandshakeIdleTimeout: e.cfg.HandshakeTimeout,
		MaxIdleTimeout:       forever,

		// Both windows have their full size from the start. A window that
		// grew on demand would need the reader to be fast first, and the
		// window of the connection must hold all pipes that nobody reads.
		InitialStreamReceiveWindow:     window,
		MaxStreamReceiveWindow:         window,
		InitialConnectionReceiveWindow: window * uint64(e.cfg.MaxPipes),
		MaxConnectionReceiveWindow:     window * uint64(e.cfg.MaxPipes),

		MaxIncomingUniStreams: int64(e.cfg.MaxPipes),
		MaxIncomingStreams:    -1,
		EnableDatagrams:       true, // for doubt alone
		InitialPacketSize:     uint16(e.cfg.PacketSize),
	}
	switch {
	case conf.InitialPacketSize != 0:
	case remote.Addr().IsLoopback():
		conf.InitialPacketSize = largestPacket
	default:
		conf.InitialPacketSize = smallestPacket
	}
	if e.cfg.Heartbeat > 0 && (e.cfg.Heartbeats == nil || e.cfg.Heartbeats(remote.String())) {
		conf.KeepAlivePeriod = e.cfg.Heartbeat
		conf.MaxIdleTimeout = e.cfg.IdleTimeout
	}
	return conf
}

const (
	// forever is the idle timeout of connections without heartbeats.
	forever = 10 * 365 * 24 * time.Hour

	// smallestPacket is the smallest first packet that QUIC allows. It fits
	// links of 1,280 bytes, the least that IPv6 demands of a link, with the
	// headers of UDP and IPv6. Tunnels are that narrow, and many of them drop
	// longer packets without an ICMP message.
	smallestPacket = 1200

	// largestPacket is the largest packet that quic-go sends: what fits an
	// Ethernet frame over IPv6.
	largestPacket = 1452
)
