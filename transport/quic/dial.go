package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/transport"
)

// dial connects to one of the addresses of addr and waits until the peer has accepted.
func (e *Endpoint) dial(ctx context.Context, addr string, conf *tls.Config) (*quicgo.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, dialError(addr, context.Cause(ctx))
	}
	addrs, err := e.resolve(ctx, addr)
	if err != nil {
		return nil, dialError(addr, err)
	}
	r := eyeballs.Race[*quicgo.Conn]{Discard: func(qc *quicgo.Conn) { qc.CloseWithError(codeClosed, "another address has answered") }}
	for _, remote := range addrs {
		r.Attempts = append(r.Attempts, func(ctx context.Context, _ func()) (*quicgo.Conn, error) { return e.dialRemote(ctx, remote, conf) })
	}
	winner, qc, errs := r.Run(ctx)
	if winner < 0 {
		return nil, dialError(addr, errs[0])
	}
	return qc, nil
}

// dialRemote connects to an address and waits until the peer has accepted.
func (e *Endpoint) dialRemote(ctx context.Context, remote net.Addr, conf *tls.Config) (*quicgo.Conn, error) {
	a := e.dials.start(e.ctx, eyeballs.AddrPort(remote))
	if a == nil {
		return nil, transport.ErrClosed
	}
	defer e.dials.end(a)
	if _, ok := e.packets.(*socket); ok {
		a.tasks.Go(a.checkPort)
	}

	stop := context.AfterFunc(ctx, func() { a.abandon(context.Cause(ctx)) })
	defer stop()

	accepted := make(tokenSignal, 1)
	qconf := e.quicConfig(a.remote)
	qconf.TokenStore = accepted
	qc, err := e.quic.Dial(a.ctx, remote, a.commitIn(conf), qconf)
	if err == nil {
		if err = awaitAccepted(ctx, a.ctx, qc, accepted, e.cfg.HandshakeTimeout); err == nil {
			return qc, nil
		}
		qc.CloseWithError(codeClosed, "the dial was abandoned")
	}
	switch {
	case e.ctx.Err() != nil:
		err = transport.ErrClosed
	case a.ctx.Err() != nil && errors.Is(err, context.Cause(a.ctx)):
		err = context.Cause(a.ctx)
	}
	return nil, err
}

// awaitAccepted waits until the server has verified the certificate of this side. In TLS
// 1.3 the handshake of the client ends before that.
func awaitAccepted(ctx, attempt context.Context, qc *quicgo.Conn, accepted tokenSignal, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-accepted:
		return nil
	case <-qc.Context().Done():
		return context.Cause(qc.Context())
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-attempt.Done():
		return context.Cause(attempt)
	case <-timer.C:
		return fmt.Errorf("%w: it did not complete the handshake", transport.ErrPeerGone)
	}
}

// A tokenSignal is closed by the NEW_TOKEN frame that a server sends when its handshake
// is complete: the server has accepted the client. The token is discarded.
type tokenSignal chan struct{}

func (tokenSignal) Pop(string) *quicgo.ClientToken { return nil }

func (s tokenSignal) Put(string, *quicgo.ClientToken) {
	select {
	case s <- struct{}{}:
	default:
	}
}

// dials holds the dials in progress, by their address.
type dials struct {
	mu     sync.Mutex
	open   map[*attempt]struct{}
	closed bool
	all    sync.WaitGroup
}

// An attempt is a dial in progress. It can be abandoned until this side sends the message
// that completes the handshake for the server. After that it must be closed in order, or
// the peer would keep the connection.
type attempt struct {
	remote netip.AddrPort
	ctx    context.Context
	cancel context.CancelCauseFunc
	state  atomic.Int32 // attemptOpen, then another state
	tasks  sync.WaitGroup
}

const (
	attemptOpen int32 = iota
	attemptAbandoned
	attemptCommitted
)

// start begins an attempt. It returns nil after close.
func (d *dials) start(ctx context.Context, remote netip.AddrPort) *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	a := &attempt{remote: remote}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if d.open == nil {
		d.open = make(map[*attempt]struct{})
	}
	d.open[a] = struct{}{}
	d.all.Add(1)
	return a
}

func (d *dials) end(a *attempt) {
	a.cancel(nil)
	a.tasks.Wait()
	d.mu.Lock()
	delete(d.open, a)
	d.mu.Unlock()
	d.all.Done()
}

// close refuses further attempts, and waits for the end of the others.
func (d *dials) close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.all.Wait()
}

// unreachable abandons the dials to remote after the system has reported that it is
// unreachable.
func (d *dials) unreachable(remote netip.AddrPort, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := range d.open {
		if a.remote == remote {
			a.fail(err)
		}
	}
}

func (a *attempt) abandon(cause error) {
	if a.state.CompareAndSwap(attemptOpen, attemptAbandoned) {
		a.cancel(cause)
	}
}

// commitIn adds the commitment of the attempt to a TLS configuration: after the verification of
// the server, before the certificate of the client is sent.
func (a *attempt) commitIn(conf *tls.Config) *tls.Config {
	conf = conf.Clone()
	verify := conf.VerifyConnection
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		if verify != nil {
			if err := verify(state); err != nil {
				return err
			}
		}
		if !a.state.CompareAndSwap(attemptOpen, attemptCommitted) {
			return context.Cause(a.ctx)
		}
		return nil
	}
	return conf
}

// resolve returns the addresses of addr that the socket can reach, at least one.
func (e *Endpoint) resolve(ctx context.Context, addr string) ([]net.Addr, error) {
	if e.network != nil {
		remote, err := e.network.Resolve(addr)
		return []net.Addr{remote}, err
	}
	all, err := eyeballs.Resolve(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	v4, v6 := families(e.packets.LocalAddr())
	var reachable []net.Addr
	for _, ap := range all {
		if ap.Addr().Is4() && v4 || ap.Addr().Is6() && v6 {
			reachable = append(reachable, net.UDPAddrFromAddrPort(ap))
		}
	}
	if len(reachable) == 0 {
		return nil, fmt.Errorf("the socket at %s cannot reach %v", e.addr, all)
	}
	return reachable, nil
}

// families reports the kinds of addresses that a socket can send to.
func families(local net.Addr) (v4, v6 bool) {
	ip := eyeballs.AddrPort(local).Addr()
	switch {
	case !ip.IsValid(), ip == netip.IPv6Unspecified():
		return true, true
	default:
		return ip.Is4(), ip.Is6()
	}
}
