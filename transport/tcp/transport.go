// Package tcp is the transport over TCP: bulk between hosts.
//
// Most programs call one thing. Listen opens a port, or takes the one that a
// quic.Endpoint shares, and returns a transport.Transport: what is promised
// there is kept here.
//
// A Conn is one socket for control, and one for each pipe, so a pipe that
// nobody reads never delays another. The control socket is TLS 1.3 with
// certificates on both sides, always. It proves who the two are, says when a
// pipe or the Conn has been closed in good order, and shows that the peer
// lives: when a process dies its kernel closes the socket, and the Conn ends
// at once. All sockets are dialed by the side that dialed the Conn, so the
// other one need not be able to reach it.
//
// The socket of a pipe is TLS 1.3 of its own, again with certificates on both
// sides. With Config.Plain it is not protected: who is on the way between the
// two can read and change what passes. In both cases the two ends first prove,
// each to the other, that they hold a key from the TLS session of the control
// socket (RFC 8446, section 7.5), so nobody else can put a pipe into a Conn.
//
// A pipe says with its end how many bytes it had. So a pipe whose process was
// killed, or that was cut on the way, is never taken for one that has ended; a
// socket that breaks without a word ends its Conn with transport.ErrPeerGone.
//
// The peer's host counts as gone when its kernel has not answered for
// Config.IdleTimeout. A process that stands still is alive.
//
// All methods may be called by several goroutines, save those of a single
// pipe, for which package transport sets the rule. Senders have the capabilities
// TryWriter and VectorWriter, and on Linux also PartWriter and TryVectorWriter;
// there receivers have the capabilities Poller and Locator.
package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// Credentials are how a node proves who it is, and checks who its peers are.
// They are those of transport/quic.
type Credentials interface {
	// Server is the configuration for clients. It must demand and verify a
	// certificate.
	Server() *tls.Config

	// Client is the configuration for dialing peer. It must fail the
	// handshake with any server that is not peer, or that is no member of
	// the cluster if peer is empty.
	Client(peer string) *tls.Config

	// Peer reads the identity from a completed handshake. A client without
	// one, "", is refused.
	Peer(state tls.ConnectionState) (string, error)
}

// Config says how a Transport works. The zero value listens at any port of all
// addresses, IPv4 and IPv6, and protects everything.
type Config struct {
	// Addr is the address to listen at, "host:port". An empty host is every
	// address, an empty or zero port any free one.
	Addr string

	// Listener is used in place of a port at Addr, and closed by Close. Its
	// connections must be TCP; quic.Endpoint.Listener has them.
	Listener net.Listener

	// Plain leaves what pipes carry unprotected. It must be set on both
	// sides, or neither: a Dial between the two kinds fails.
	Plain bool

	// MaxPipes is how many pipes a peer may have open on a Conn. A further
	// OpenPipe waits. Default 64.
	MaxPipes int

	// IdleTimeout is how long the kernel of a peer may leave unanswered what
	// it is asked before the peer counts as gone. It is counted in whole
	// seconds, fifteen at least. Default 15 s. Negative: never.
	IdleTimeout time.Duration

	// HandshakeTimeout is how long a new socket has to prove what it is.
	// One of a pipe that stands still for a fifth of that is given up for another one.
	// Default 10 s.
	HandshakeTimeout time.Duration

	// MaxHandshakes is how many accepted sockets may be about to do so. Beyond it the
	// address with the most of them loses its oldest one (internal/admission). If
	// Listener is that of a quic.Endpoint, its limit holds for both instead. Default 256.
	MaxHandshakes int

	// Anonymous accepts peers that have no identity: processes that join a cluster,
	// and the seed for them. Conn.Peer is their address then. Until MarkAuthenticated is
	// called an accepted Conn counts as one of MaxHandshakes, and can be closed to
	// make room.
	Anonymous bool

	// DialOnly opens no port: Accept fails at once, and Addr is empty.
	DialOnly bool

	// Log gets what an operator should know. Nil discards it.
	Log *slog.Logger

	minAge time.Duration // of a socket that is evicted; 0 is the default
}

func (cfg Config) withDefaults() Config {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxPipes <= 0 {
		cfg.MaxPipes = 64
	}
	if cfg.IdleTimeout == 0 {
		cfg.IdleTimeout = 15 * time.Second
	}
	if cfg.HandshakeTimeout <= 0 {
		cfg.HandshakeTimeout = 10 * time.Second
	}
	if cfg.MaxHandshakes <= 0 {
		cfg.MaxHandshakes = 256
	}
	return cfg
}

// backlogMax is how many Conns wait for Accept before more are closed.
const backlogMax = 1024

// A Transport accepts Conns at its port and dials peers by their identity. It
// implements transport.Transport.
type Transport struct {
	cfg        Config
	creds      Credentials
	listener   net.Listener
	server     *tls.Config
	local      net.Addr // what to dial from; nil leaves it to the system
	pending    pendingSockets
	files      transport.FileShortage
	views      sync.Pool // *[viewBytes]byte, held only while they hold something
	records    sync.Pool // *[]byte, held only while something is written
	backlog    chan transport.Conn
	acceptDone chan struct{} // closed when the listener has been closed
	ctx        context.Context
	cancel     context.CancelCauseFunc

	// verdictMax is how long the control socket may take to say why the
	// socket of a pipe has ended: as long as it takes to find out that it
	// says nothing any more.
	causeTimeout time.Duration

	// understate, set by tests only, makes senders take more bytes for unacknowledged
	// than are.
	overstateUnacked func(unacked, most int) int
	// drop, set by tests only, reports whether a socket that a pipe of the peer has
	// moved to is to be lost before it is used.
	dropMigrated func() bool

	tasks     sync.WaitGroup
	closeOnce sync.Once

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{}
	byID   map[connID]*conn // those that were accepted
}

var _ transport.Transport = (*Transport)(nil)

// Listen starts to accept Conns.
func Listen(cfg Config, creds Credentials) (*Transport, error) {
	cfg = cfg.withDefaults()
	listener := cfg.Listener
	if cfg.DialOnly {
		listener = noListener{}
	}
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", cfg.Addr); err != nil {
			return nil, fmt.Errorf("tcp: %w", err)
		}
	}
	t := &Transport{
		cfg:        cfg,
		creds:      creds,
		listener:   listener,
		backlog:    make(chan transport.Conn, backlogMax),
		acceptDone: make(chan struct{}),
		conns:      make(map[*conn]struct{}),
		byID:       make(map[connID]*conn),

		causeTimeout: max(cfg.IdleTimeout, 5*time.Second),
	}
	if conf := creds.Server(); conf != nil {
		t.server = prepare(conf)
	}
	if ap := addrPort(listener.Addr()); ap.IsValid() && !ap.Addr().IsUnspecified() {
		t.local = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ap.Addr(), 0))
	}
	t.pending.init(admission.Limits{Max: cfg.MaxHandshakes, MinAge: cfg.minAge})
	t.views.New = func() any { return new([viewBytes]byte) }
	t.records.New = func() any { b := make([]byte, 0, batchBufferBytes); return &b }
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.tasks.Go(t.acceptLoop)
	t.tasks.Go(t.monitor)
	return t, nil
}

// A nowhere is the listener of a transport that only dials.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.UnixAddr{} }

// Name is "tcp".
func (t *Transport) Name() string { return "tcp" }

// Addr is the address of the port. Its host may be unspecified.
func (t *Transport) Addr() string { return plainAddr(t.listener.Addr()) }

// Capabilities implements [transport.Capable].
func (t *Transport) Capabilities() transport.Capabilities {
	can := t.class()
	can.FileUser = t
	return can
}

func (t *Transport) class() transport.Capabilities {
	if t.cfg.Plain {
		return transport.Capabilities{Class: transport.ClassTCP}
	}
	return transport.Capabilities{Class: transport.ClassTLS}
}

// OutOfFiles says that there were no sockets to be had of late: see
// transport.FileUser.
func (t *Transport) OutOfFiles() error { return t.files.OutOfFiles() }

// Accept returns the next Conn whose peer has proved its identity.
func (t *Transport) Accept(ctx context.Context) (transport.Conn, error) {
	if t.ctx.Err() != nil {
		return nil, errTransportClosed
	}
	select {
	case c := <-t.backlog:
		return c, nil
	case <-t.ctx.Done():
		return nil, errTransportClosed
	case <-t.acceptDone:
		return nil, errListenerClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops accepting, ends all Conns, tells their peers, and waits for the
// goroutines of the Transport: a second at most for peers that do not answer.
func (t *Transport) Close() error {
	t.closeOnce.Do(func() {
		t.mu.Lock()
		t.closed = true
		var closing sync.WaitGroup
		for c := range t.conns {
			closing.Go(func() { c.Close() })
		}
		t.mu.Unlock()

		t.cancel(errTransportClosed)
		t.listener.Close()
		t.pending.close()
		closing.Wait()
	})
	t.tasks.Wait()
	return nil
}

// adopt makes t the owner of a Conn.
func (t *Transport) adopt(c *conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return errTransportClosed
	}
	t.conns[c] = struct{}{}
	if !c.dialed {
		t.byID[c.keys.id] = c
	}
	t.tasks.Go(c.readMessages)
	t.tasks.Go(c.writeMessages)
	return nil
}

func (t *Transport) remove(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	if t.byID[c.keys.id] == c {
		delete(t.byID, c.keys.id)
	}
}

func (t *Transport) connByID(id connID) *conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

// addrPort is an address in its plain form: IPv4 addresses that a dual-stack
// socket shows as IPv6 become IPv4 again.
func addrPort(addr net.Addr) netip.AddrPort {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

func plainAddr(addr net.Addr) string {
	if ap := addrPort(addr); ap.IsValid() {
		return ap.String()
	}
	return addr.String()
}
