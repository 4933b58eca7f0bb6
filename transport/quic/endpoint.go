// Package quic implements [transport.Transport] over QUIC. nexar uses it for control, for small
// messages, and on networks that lose packets.
//
// [Listen] opens the UDP socket that a node uses for all its connections. [Endpoint.Dial]
// connects with an explicit TLS configuration, which a node without a certificate needs to
// join. [Endpoint.Transport] starts to accept, and dials peers by identity.
//
// A pipe is a QUIC stream. The receive window of a connection is the sum of the windows of its
// pipes, so a pipe that is not read never delays another one.
//
// QUIC does not detect that a process was killed, since UDP does not. So an Endpoint also
// listens on TCP, at the same address and port, and the two ends of a watched connection keep
// an idle TCP connection beside it, which the kernel closes with the process (watch.go).
// Heartbeats detect the failure of a host or of the network. A transport over TCP can share the
// port ([Endpoint.Listener]).
//
// Errors wrap one of the errors of package transport and contain the reason. A packet that the
// system refuses to send counts as lost and does not end the connection.
//
// Methods may be called concurrently, except those of a single pipe, which follow the rule of
// package transport.
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

// Config configures an [Endpoint]. The zero value listens at any port of all addresses,
// IPv4 and IPv6.
type Config struct {
	// Addr is the UDP and TCP address to listen at, "host:port". An empty host means all
	// addresses, an empty or zero port any free port.
	Addr string

	// PacketConn replaces the socket at Addr. Endpoint.Close closes it. Over a PacketConn
	// that is not a UDP socket peers cannot watch each other.
	PacketConn net.PacketConn

	// Log receives messages for operators. Nil discards them.
	Log *slog.Logger

	// OthersWarn says that another process of this host warns of small UDP buffers, which concern all of them.
	OthersWarn bool

	// PipeWindow is the number of unread bytes that a pipe may have. The peer can make
	// this side buffer as much for each of MaxPipes. Default 8 MiB.
	PipeWindow int

	// MaxPipes is the number of pipes that a peer may have open on a connection. Its next
	// OpenPipe blocks. Default 64.
	MaxPipes int

	// Heartbeat is the interval of heartbeats on an idle connection. Default one second.
	// Negative: no heartbeats, and silence never ends a connection.
	Heartbeat time.Duration

	// IdleTimeout is the time without a packet, from the first unanswered heartbeat,
	// after which the peer counts as gone. Default 5 s.
	IdleTimeout time.Duration

	// Heartbeats reports whether a connection has heartbeats, by the address of its peer.
	// It is called before the handshake, on both sides. A connection has heartbeats if
	// either side wants them. Nil: every connection has.
	Heartbeats func(addr string) bool

	// NoWatch disables the TCP port, and watches in both directions.
	NoWatch bool

	// Watch reports whether to watch the peer of a connection from the start. Conn.Watch can
	// do so later. Nil: every peer is watched.
	Watch func(peer string) bool

	// HandshakeTimeout is the time that a handshake may make no progress. One that makes
	// progress may take twice as long. Default 5 s.
	HandshakeTimeout time.Duration

	// MaxHandshakes is the number of incoming connections, over UDP and TCP together,
	// that may be unauthenticated at a time. Above it the address with the most of them
	// loses its oldest one (internal/admission). From an eighth of it on, QUIC clients
	// must validate their address. Default 512.
	MaxHandshakes int

	// PacketSize is the size of the first packets of a connection, without UDP and IP
	// headers. Over a path that cannot carry them Dial fails. Default: 1452, the largest,
	// on loopback, otherwise 1200, the smallest. Path MTU discovery finds larger ones.
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

// An Endpoint is the UDP socket of a node for all its connections, and the TCP port at
// which peers watch it.
type Endpoint struct {
	cfg     Config
	addr    string
	packets net.PacketConn
	network network // packets, or nil
	quic    *quicgo.Transport
	watch   *watchServer // nil without a TCP port
	dials   dials

	warnOfBuffers func() // that they are small; not nil

	scratch sync.Pool // *[scratchBytes]byte, held only while a pipe is read

	handshakes handshakes

	acceptorIdle time.Duration // time that an acceptor waits for a connection

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu        sync.Mutex
	closed    bool
	transport *Transport
	conns     map[*Conn]struct{}

	// explicit counts the goroutines of connections without a Transport.
	explicit sync.WaitGroup
	shut     sync.Once
}

// Listen opens the socket of a node. It accepts no connections before Transport is
// called.
func Listen(cfg Config) (*Endpoint, error) {
	cfg = cfg.withDefaults()
	packets, listener, err := bind(cfg)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{
		cfg:          cfg,
		conns:        make(map[*Conn]struct{}),
		acceptorIdle: 10 * time.Second,

		warnOfBuffers: func() {}, // without a UDP socket
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.scratch.New = func() any { return new([scratchBytes]byte) }
	e.handshakes.admission = admission.NewGate(admission.Limits{Max: cfg.MaxHandshakes})
	e.handshakes.refusals = &refusals{log: cfg.Log}
	e.handshakes.max = 2 * int64(cfg.MaxHandshakes)
	e.handshakes.source = e.source
	e.network, _ = packets.(network)
	e.addr = e.text(packets.LocalAddr())
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

// Addr returns the address of the socket. Its host may be unspecified.
func (e *Endpoint) Addr() string { return e.addr }

// Dial connects to addr with an explicit TLS configuration, which alone determines how the peer
// proves itself. The Peer of the Conn is its address. Dial returns when the peer has accepted,
// or with [transport.ErrIdentity] if either side rejects the certificate of the other. It does
// not retry.
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
	return e.adopt(qc, nil, e.text(qc.RemoteAddr()), true)
}

// Close closes all connections and the socket, and waits for the goroutines of e.
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
	e.dials.close()
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

// adopt makes a Conn of a QUIC connection after its handshake. It belongs to t, or to the
// endpoint if t is nil.
func (e *Endpoint) adopt(qc *quicgo.Conn, t *Transport, peer string, dialed bool) (*Conn, error) {
	c := &Conn{
		end:       e,
		owner:     t,
		qc:        qc,
		peer:      peer,
		remote:    e.text(qc.RemoteAddr()),
		dialed:    dialed,
		accepting: make(chan struct{}, 1),
	}
	if e.watch != nil {
		var err error
		if c.keys, err = deriveWatchKeys(qc.ConnectionState().TLS, dialed); err != nil {
			qc.CloseWithError(codeRefused, err.Error())
			return nil, fmt.Errorf("quic: %s: %w", c.remote, err)
		}
	}

	if t != nil {
		e.warnOfBuffers()
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
	if t != nil {
		select {
		case t.adopted <- struct{}{}:
		default:
		}
	}

	if c.keys != nil {
		e.watch.add(c)
	}
	context.AfterFunc(qc.Context(), c.cleanUp)
	if c.keys != nil && (e.cfg.Watch == nil || e.cfg.Watch(peer)) {
		c.Watch()
	}
	return c, nil
}

// closeConns concurrently closes the connections that which selects.
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

// quicConfig returns the configuration of a connection to remote.
func (e *Endpoint) quicConfig(remote netip.AddrPort) *quicgo.Config {
	window := uint64(e.cfg.PipeWindow)
	conf := &quicgo.Config{
		HandshakeIdleTimeout: e.cfg.HandshakeTimeout,
		MaxIdleTimeout:       forever,

		// Both windows have their full size from the start. A window that grows on demand
		// needs a fast reader first, and the window of the connection must hold all pipes
		// that are not read.
		InitialStreamReceiveWindow:     window,
		MaxStreamReceiveWindow:         window,
		InitialConnectionReceiveWindow: window * uint64(e.cfg.MaxPipes),
		MaxConnectionReceiveWindow:     window * uint64(e.cfg.MaxPipes),

		MaxIncomingUniStreams: int64(e.cfg.MaxPipes),
		MaxIncomingStreams:    -1,
		EnableDatagrams:       true, // only for requireAnswer
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

	// smallestPacket is the smallest first packet that QUIC allows. With the headers of
	// UDP and IPv6 it fits links of 1,280 bytes, the minimum of IPv6. Tunnels are that
	// narrow, and many drop longer packets without an ICMP message.
	smallestPacket = 1200

	// largestPacket is the largest packet that quic-go sends: it fits an Ethernet frame
	// over IPv6.
	largestPacket = 1452
)
