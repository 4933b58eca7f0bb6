// Package tcp implements [transport.Transport] over TCP. nexar uses it for bulk data
// between hosts.
//
// [Listen] opens a port, or uses the one that a quic.Endpoint shares.
//
// A conn has a control socket and a socket for each pipe, so a pipe that is not read
// never delays another one. The control socket always uses TLS 1.3 with certificates on
// both sides. It authenticates both sides, announces the end of pipes and of the conn,
// and shows that the peer is alive: when a process dies, its kernel closes the socket and
// the conn ends at once. The side that dialed the conn dials all its sockets, so the
// other side does not need to reach it.
//
// The socket of a pipe resumes the TLS session of the control socket (RFC 8446, section
// 2.2), with a new key exchange. Only the two ends of the conn can, so no other process
// can add a pipe to it. Where the session cannot be resumed, because it is too old, a
// certificate of it is no longer valid, or the peer is an older build, the socket has a
// TLS session with certificates on both sides, and the two ends prove to each other that
// they hold a key exported from the session of the control socket (section 7.5). With
// Config.Plain the socket is not encrypted, and anyone on the path can read and change
// the data, but the two ends exchange the same proofs.
//
// The end of a pipe states its length. A pipe that was cut short, because its process was
// killed or its path was cut, is therefore never mistaken for one that has ended.
//
// A conn ends with [transport.ErrPeerGone] when one of its sockets breaks before both sides know
// that its pipe has ended, or stalls: the kernel of the peer has acknowledged none of its
// bytes for 0.75 s, or four round trips if that is longer. Nothing is repeated on another
// socket; a new conn may work. A peer that does not read is no stall, since its kernel closes the
// window, and neither is the time in which this process does not run. Without bytes under way,
// the host of the peer counts as gone when its kernel has not answered for Config.IdleTimeout.
// A stopped process is alive.
//
// Methods may be called concurrently, except those of a single pipe, which follow the rule of
// package transport. Senders have the capability VectorWriter, and on Linux TryWriter, TryVectorWriter and PartWriter.
// On Linux receivers have the capabilities Poller and CPULocator.
package tcp

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/transport"
)

// Credentials authenticate a node to its peers, and its peers to it. transport/quic uses
// the same.
//
// A [Transport] replaces the settings of its configurations for the resumption of
// sessions: SessionTicketsDisabled, ticket keys, ClientSessionCache, WrapSession and
// UnwrapSession. The socket of a pipe resumes the session of its conn if VerifyConnection
// and Peer accept the certificate of that session at that time, and VerifyConnection is
// called again in the handshake. With VerifyPeerCertificate, which crypto/tls does not
// call for resumed sessions, none is resumed.
type Credentials interface {
	// Server returns the configuration for clients. It must require and verify a
	// certificate.
	Server() *tls.Config

	// Client returns the configuration for dialing peer. It must fail the handshake with
	// any server other than peer, or, if peer is empty, with any server that is not a
	// member of the cluster. The error of its VerifyConnection wraps [transport.ErrIdentity].
	Client(peer string) *tls.Config

	// Peer returns the identity from a completed handshake. A client with the identity ""
	// is refused, unless Config.Anonymous is set.
	Peer(state tls.ConnectionState) (string, error)
}

// Config configures a [Transport]. The zero value listens at any port of all addresses,
// IPv4 and IPv6, and encrypts everything.
type Config struct {
	// Addr is the address to listen at, "host:port". An empty host means all addresses,
	// an empty or zero port any free port.
	Addr string

	// Listener replaces the port at Addr. Close closes it. Its connections must be TCP,
	// such as those of quic.Endpoint.Listener.
	Listener net.Listener

	// Plain leaves pipes unencrypted. Dial fails between two sides that differ in it.
	Plain bool

	// MaxPipes is the number of pipes that a peer may have open on a conn. Its next
	// OpenPipe blocks. Default 64.
	MaxPipes int

	// IdleTimeout is the time without an answer from the kernel of an idle peer after which the
	// peer counts as gone, in whole seconds, at least 15. Default 15 s. Negative: no
	// timeout.
	IdleTimeout time.Duration

	// HandshakeTimeout is the time that the handshake of a new socket may make no progress: from its
	// start, or from the last messages of this side, to the answer of the peer. Default 10 s.
	HandshakeTimeout time.Duration

	// MaxHandshakes is the number of accepted sockets that may be unauthenticated at a
	// time. Above it the address with the most of them loses its oldest one
	// (internal/admission). If Listener belongs to a quic.Endpoint, the limit of the
	// Endpoint applies to both instead. Default 256.
	MaxHandshakes int

	// Anonymous accepts peers without an identity: processes that join a cluster, and the
	// seed that they dial. Conn.Peer returns their address then. An accepted conn counts
	// towards MaxHandshakes and can be evicted until MarkAuthenticated is called. A conn with a socket that stalls does not end: unlike
	// those of links, it is not replaced.
	Anonymous bool

	// DialOnly opens no port. Accept fails at once, and Addr is empty.
	DialOnly bool

	// Log receives messages for operators. Nil discards them.
	Log *slog.Logger

	minAge time.Duration // minimum age of a socket before it is evicted; 0 selects the default
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

// backlogMax is the number of conns that wait for Accept. Further ones are closed.
const backlogMax = 1024

// A Transport accepts conns at its port and dials peers by identity. It implements
// [transport.Transport].
type Transport struct {
	cfg        Config
	creds      Credentials
	listener   net.Listener
	server     *tls.Config
	local      net.Addr // the address to dial from; nil lets the kernel choose
	pending    pendingSockets
	files      transport.FileShortage
	views      sync.Pool // *[viewBytes]byte, held only while they contain data
	records    sync.Pool // *[]byte, held only while data is being written
	backlog    chan transport.Conn
	acceptDone chan struct{} // closed when the listener is closed
	ctx        context.Context
	cancel     context.CancelCauseFunc

	monitoring monitorWake

	tasks     sync.WaitGroup
	closeOnce sync.Once

	mu     sync.Mutex
	closed bool
	conns  map[*conn]struct{}
	byID   map[connID]*conn // accepted conns
}

var _ transport.Transport = (*Transport)(nil)

// Listen opens the port and starts to accept conns.
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
	}
	if t.server = creds.Server(); t.server == nil {
		t.server = new(tls.Config) // without a certificate, handshakes fail
	}
	if ap := eyeballs.AddrPort(listener.Addr()); ap.IsValid() && !ap.Addr().IsUnspecified() {
		t.local = net.TCPAddrFromAddrPort(netip.AddrPortFrom(ap.Addr(), 0))
	}
	t.pending.init(admission.Limits{Max: cfg.MaxHandshakes, MinAge: cfg.minAge})
	t.views.New = func() any { return new([viewBytes]byte) }
	t.records.New = func() any { b := make([]byte, 0, batchBufferBytes); return &b }
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.tasks.Go(t.acceptLoop)
	t.monitoring.wake = make(chan struct{}, 1)
	t.tasks.Go(t.monitor)
	return t, nil
}

// A noListener is the listener of a [Transport] with Config.DialOnly.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.UnixAddr{} }

// Name returns "tcp".
func (t *Transport) Name() string { return "tcp" }

// Addr returns the address of the port. Its host may be unspecified.
func (t *Transport) Addr() string { return eyeballs.PlainAddr(t.listener.Addr()) }

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

// OutOfFiles implements [transport.FileUser].
func (t *Transport) OutOfFiles() error { return t.files.OutOfFiles() }

// Accept returns the next conn with an authenticated peer.
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

// Close stops accepting, closes all conns, and waits for the goroutines of t. It waits at
// most a second for peers that do not answer.
func (t *Transport) Close() error {
	t.closeOnce.Do(func() {
		t.mu.Lock()
		t.closed = true
		conns := slices.Collect(maps.Keys(t.conns))
		t.mu.Unlock()

		for _, c := range conns {
			c.end(errConnClosed) // before pending closes sockets of its pipes
		}
		t.cancel(errTransportClosed)
		t.listener.Close()
		t.pending.close()
		for _, c := range conns {
			<-c.writeDone
		}
	})
	t.tasks.Wait()
	return nil
}

// adopt adds a conn to t and starts its goroutines.
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
