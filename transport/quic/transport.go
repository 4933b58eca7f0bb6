package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/transport"
)

// Credentials are how a node proves who it is, and checks who its peers are.
type Credentials interface {
	// Server is the configuration for clients. It must demand and verify a
	// certificate of all those that Peer names. Session tickets are of no
	// use here and best disabled.
	Server() *tls.Config

	// Client is the configuration for dialing peer. It must fail the
	// handshake with any server that is not peer, or that is no member of
	// the cluster if peer is empty.
	Client(peer string) *tls.Config

	// Peer reads the identity from a completed handshake. It should refuse
	// nothing that Server and Client let pass: the other side has already
	// been told that it is accepted. No identity, "", is for clients that
	// have yet to prove who they are, by other means: for their first 30 s,
	// no more than a MiB of what they send may wait to be read.
	Peer(state tls.ConnectionState) (string, error)
}

// backlogMax is how many connections wait for Accept before more are refused.
const backlogMax = 1024

// A Transport accepts connections at its Endpoint and dials peers by their
// identity. It implements transport.Transport; every transport.Conn it returns
// is a *Conn.
type Transport struct {
	end     *Endpoint
	creds   Credentials
	ln      *quicgo.EarlyListener
	backlog chan *Conn
	life    context.Context // ends with Close
	cancel  context.CancelCauseFunc
	loop    sync.WaitGroup // the acceptors
	tasks   sync.WaitGroup // the goroutines of its connections
	closing bool           // guarded by end.mu
	shut    sync.Once

	acceptors atomic.Int64 // goroutines that take connections from ln
}

var _ transport.Transport = (*Transport)(nil)

// Transport starts to accept connections. An Endpoint has at most one
// Transport at a time.
func (e *Endpoint) Transport(creds Credentials) (*Transport, error) {
	t := &Transport{
		end:     e,
		creds:   creds,
		backlog: make(chan *Conn, backlogMax),
	}
	t.life, t.cancel = context.WithCancelCause(context.Background())
	conf := e.quicConfig(addrPort(e.packets.LocalAddr()))
	conf.GetConfigForClient = func(info *quicgo.ClientInfo) (*quicgo.Config, error) {
		return e.quicConfig(addrPort(info.RemoteAddr)), nil
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
	// An early listener hands connections over as soon as their ClientHello has been
	// read, so that they can be evicted during the handshake. There is no 0-RTT.
	ln, err := e.quic.ListenEarly(creds.Server(), conf)
	if err != nil {
		return nil, fmt.Errorf("quic: listen at %s: %w", e.addr, err)
	}
	t.ln = ln
	e.transport = t
	return t, nil
}

// Name is "quic".
func (t *Transport) Name() string { return "quic" }

// Addr is the address of the Endpoint.
func (t *Transport) Addr() string { return t.end.addr }

// Capabilities implements [transport.Capable].
func (t *Transport) Capabilities() transport.Capabilities {
	return transport.Capabilities{Class: transport.ClassQUIC, FileUser: t}
}

// OutOfFiles says that there were no TCP sockets to be had of late: see
// transport.FileUser. Whoever shares the TCP port has got none then, either.
func (t *Transport) OutOfFiles() error {
	if t.end.watch == nil {
		return nil
	}
	return t.end.watch.files.OutOfFiles()
}

// Dial connects to the transport that listens at addr and proves to be peer.
// The host may be a name; the first IPv4 address is taken if there is one that
// the socket can reach. Dial returns when both sides have accepted each other.
// It does not try again.
func (t *Transport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.life, func() { cancel(transport.ErrClosed) })()

	qc, err := t.end.dial(ctx, addr, t.creds.Client(peer))
	if err != nil {
		return nil, err
	}
	got, err := t.creds.Peer(qc.ConnectionState().TLS)
	if err == nil && peer != "" && got != peer {
		err = fmt.Errorf("it is %q, not %q", got, peer)
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

// Accept returns the next connection whose peer has proved its identity.
func (t *Transport) Accept(ctx context.Context) (transport.Conn, error) {
	if t.life.Err() != nil {
		return nil, transport.ErrClosed
	}
	select {
	case c := <-t.backlog:
		return c, nil
	case <-t.life.Done():
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close stops accepting, ends the connections that were dialed or accepted
// through this Transport, and waits for its goroutines. The Endpoint stays
// open, with the connections of Endpoint.Dial, and may get a new Transport.
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

// startAcceptors starts as many acceptors as there are handshakes under way. quic-go
// lets only 32 connections wait for an acceptor, and refuses more although
// their peers count as connected already.
func (t *Transport) startAcceptors(handshakes int64) {
	for t.acceptors.Load() < handshakes {
		t.acceptors.Add(1)
		t.loop.Go(t.acceptLoop)
	}
}

// acceptLoop accepts connections until it has long been one too many.
func (t *Transport) acceptLoop() {
	t.end.mu.Lock()
	ln := t.ln
	t.end.mu.Unlock()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), t.end.acceptorIdle)
		qc, err := ln.Accept(ctx)
		idle := ctx.Err() != nil
		cancel()
		switch {
		case err == nil:
			t.awaitHandshake(qc)
		case !idle:
			return // the listener is closed
		default:
			// A handshake that has begun meanwhile either sees that this one
			// leaves, or is seen here.
			t.acceptors.Add(-1)
			if t.acceptors.Load() >= t.end.handshakes.pending.Load() {
				return
			}
			t.acceptors.Add(1)
		}
	}
}

// awaitHandshake waits for the end of a handshake, during which the connection may be evicted.
func (t *Transport) awaitHandshake(qc *quicgo.Conn) {
	p := unprovedOf(qc)
	defer p.handshakeOver()
	p.attach(qc)
	select {
	case <-qc.HandshakeComplete():
		p.ticket.Verify()
		t.admit(qc, p)
	case <-qc.Context().Done():
	case <-t.life.Done():
		qc.CloseWithError(codeClosed, "closed")
	}
}

// admit hands a connection to Accept if its peer has proved an identity, or may do so
// later by other means: then it can be evicted until it has.
func (t *Transport) admit(qc *quicgo.Conn, p *unproved) {
	log := t.end.cfg.Log
	peer, err := t.creds.Peer(qc.ConnectionState().TLS)
	if err != nil {
		log.Debug("quic: refused a client", "addr", plainAddr(qc.RemoteAddr()), "err", err)
		qc.CloseWithError(codeRefused, "refused")
		return
	}
	if peer != "" && !p.proved() {
		return
	}
	c, err := t.end.adopt(qc, t, peer, false)
	if err != nil {
		return
	}
	if peer == "" {
		c.unproved = p
		c.spawn(c.limitUnread)
	}
	select {
	case t.backlog <- c:
	default:
		log.Warn("quic: refused a client, because too many wait to be accepted",
			"addr", c.remote, "peer", peer, "waiting", backlogMax)
		c.finish(codeBusy, "too many connections wait to be accepted")
	}
}
