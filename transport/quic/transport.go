package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/transport"
)

// Credentials authenticate a node to its peers, and its peers to it.
type Credentials interface {
	// Server returns the configuration for clients. It must require and verify a certificate
	// from every client with an identity. Session tickets are useless here and best disabled.
	Server() *tls.Config

	// Client returns the configuration for dialing peer. It must fail the handshake with
	// any server other than peer, or, if peer is empty, with any server that is not a
	// member of the cluster.
	Client(peer string) *tls.Config

	// Peer returns the identity from a completed handshake. It should accept all that Server
	// and Client accept, since the other side already counts as accepted. The identity "" is
	// for clients that authenticate themselves later by other means. In their first 30 s at
	// most 1 MiB of their data may be unread.
	Peer(state tls.ConnectionState) (string, error)
}

// backlogMax is the number of connections that wait for Accept. Further ones are refused.
const backlogMax = 1024

// A Transport accepts connections at its Endpoint and dials peers by identity. It
// implements [transport.Transport]. Every [transport.Conn] that it returns is a [*Conn].
type Transport struct {
	end     *Endpoint
	creds   Credentials
	ln      *quicgo.EarlyListener
	backlog chan *Conn
	ctx     context.Context // ends with Close
	cancel  context.CancelCauseFunc
	loop    sync.WaitGroup // acceptors
	tasks   sync.WaitGroup // goroutines of its connections
	closing bool           // guarded by end.mu
	shut    sync.Once
	adopted chan struct{} // has a value after a new connection; wakes monitor

	acceptors atomic.Int64 // goroutines that wait for a connection of ln
}

var _ transport.Transport = (*Transport)(nil)

// Transport starts to accept connections. An Endpoint has at most one Transport at a
// time.
func (e *Endpoint) Transport(creds Credentials) (*Transport, error) {
	t := &Transport{
		end:     e,
		creds:   creds,
		backlog: make(chan *Conn, backlogMax),
		adopted: make(chan struct{}, 1),
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	conf := e.quicConfig(eyeballs.AddrPort(e.packets.LocalAddr()))
	conf.GetConfigForClient = func(info *quicgo.ClientInfo) (*quicgo.Config, error) {
		return e.quicConfig(eyeballs.AddrPort(info.RemoteAddr)), nil
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, transport.ErrClosed
	}
	if e.transport != nil {
		return nil, errors.New("quic: the endpoint has a transport already")
	}
	startAcceptors := t.startAcceptors
	e.handshakes.startAcceptors.Store(&startAcceptors)
	// An early listener returns connections as soon as their ClientHello was read, so
	// that they can be evicted during the handshake. 0-RTT stays disabled.
	ln, err := e.quic.ListenEarly(creds.Server(), conf)
	if err != nil {
		return nil, fmt.Errorf("quic: listen at %s: %w", e.addr, err)
	}
	t.ln = ln
	e.transport = t
	if e.watch != nil || e.network != nil {
		t.loop.Go(t.monitor)
	}
	return t, nil
}

// Name returns "quic".
func (t *Transport) Name() string { return "quic" }

// Addr returns the address of the Endpoint.
func (t *Transport) Addr() string { return t.end.addr }

// Capabilities implements [transport.Capable].
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{Class: transport.ClassQUIC, Silent: true, FileUser: t}
}

// OutOfFiles implements [transport.FileUser]. It also covers the transport that shares
// the TCP port.
func (t *Transport) OutOfFiles() error {
	if t.end.watch == nil {
		return nil
	}
	return t.end.watch.files.OutOfFiles()
}

// Dial connects to the transport at addr, which must prove that it is peer. The host may
// be a name. The first IPv4 address is used if the socket can reach one. Dial returns
// when both sides have accepted each other. It does not retry.
func (t *Transport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(transport.ErrClosed) })()

	qc, err := t.end.dial(ctx, addr, t.creds.Client(peer))
	if err != nil {
		return nil, err
	}
	got, err := t.creds.Peer(qc.ConnectionState().TLS)
	if err == nil && peer != "" && got != peer {
		err = fmt.Errorf("the peer is %q, want %q", got, peer)
	}
	if err != nil {
		qc.CloseWithError(codeRefused, "wrong identity")
		return nil, dialError(addr, fmt.Errorf("%w: %w", transport.ErrIdentity, err))
	}
	c, err := t.end.adopt(qc, t, got, true)
	if err != nil {
		return nil, dialError(addr, err)
	}
	return c, nil
}

// Accept returns the next connection with an authenticated peer.
func (t *Transport) Accept(ctx context.Context) (transport.Conn, error) {
	if t.ctx.Err() != nil {
		return nil, transport.ErrClosed
	}
	select {
	case c := <-t.backlog:
		return c, nil
	case <-t.ctx.Done():
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops accepting, closes the connections of this Transport, and waits for its
// goroutines. The Endpoint stays open, with the connections of Endpoint.Dial, and can get
// a new Transport.
func (t *Transport) Close() error {
	t.shut.Do(func() {
		e := t.end
		e.mu.Lock()
		t.closing = true
		e.mu.Unlock()

		t.cancel(transport.ErrClosed)
		t.ln.Close()
		t.loop.Wait()
		e.closeConns(func(c *Conn) bool { return c.owner == t })
		t.tasks.Wait()

		e.mu.Lock()
		e.transport = nil
		e.mu.Unlock()
	})
	return nil
}

// startAcceptors makes an acceptor wait for each connection that is coming. quic-go lets
// only 32 connections wait for an acceptor, and refuses more although their peers count
// as connected already. So startAcceptors returns when the acceptors run: on a busy machine that takes a while.
// An acceptor with a connection does not count: it may be slow.
func (t *Transport) startAcceptors() {
	for t.acceptors.Load() < t.end.handshakes.coming.Load() {
		t.acceptors.Add(1)
		runs := make(chan struct{})
		t.loop.Go(func() { t.accept(runs) })
		<-runs
	}
}

// accept accepts a connection, and completes its handshake. It returns earlier if it has been superfluous for acceptorIdle.
func (t *Transport) accept(runs chan<- struct{}) {
	t.end.mu.Lock()
	ln := t.ln
	t.end.mu.Unlock()
	close(runs)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), t.end.acceptorIdle)
		qc, err := ln.Accept(ctx)
		idle := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			t.acceptors.Add(-1)
			t.awaitHandshake(qc)
			return
		case !idle:
			return // the listener is closed
		default:
			// A handshake that begins now either sees that this acceptor leaves, or is
			// seen here.
			t.acceptors.Add(-1)
			if t.acceptors.Load() >= t.end.handshakes.coming.Load() {
				return
			}
			t.acceptors.Add(1)
		}
	}
}

// awaitHandshake waits for the end of a handshake, during which the connection may be
// evicted.
func (t *Transport) awaitHandshake(qc *quicgo.Conn) {
	p := unauthenticatedOf(qc)
	p.arrived()
	t.startAcceptors() // A connection that came meanwhile may have counted this acceptor, or qc has ended before it arrived.
	p.attach(qc)
	select {
	case <-qc.HandshakeComplete():
		p.ticket.Verify()
		t.admit(qc, p)
	case <-qc.Context().Done():
	case <-t.ctx.Done():
		qc.CloseWithError(codeClosed, "closed")
	}
}

// admit passes a connection to Accept if its peer has an identity, or may authenticate
// itself later by other means. Then it can be evicted until it has.
func (t *Transport) admit(qc *quicgo.Conn, p *unauthenticated) {
	log := t.end.cfg.Log
	peer, err := t.creds.Peer(qc.ConnectionState().TLS)
	if err == nil && !t.end.isFrom(qc.RemoteAddr(), peer) {
		err = fmt.Errorf("the peer is %q: want the node of its address", peer)
	}
	if err != nil {
		log.Debug("quic: refused a client", "addr", t.end.text(qc.RemoteAddr()), "err", err)
		qc.CloseWithError(codeRefused, "refused")
		return
	}
	if peer != "" && !p.authenticated() {
		return
	}
	c, err := t.end.adopt(qc, t, peer, false)
	if err != nil {
		return
	}
	if peer == "" {
		c.unauthenticated = p
		c.spawn(c.limitUnread)
	}
	select {
	case t.backlog <- c:
	default:
		log.Warn("quic: refused a client: too many wait for Accept",
			"addr", c.remote, "peer", peer, "waiting", backlogMax)
		c.finish(codeBusy, "too many connections wait to be accepted")
	}
}
