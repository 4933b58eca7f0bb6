package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/transport"
)

// past returns a deadline that interrupts blocked calls.
func past() time.Time { return time.Unix(1, 0) }

// Dial connects to the transport at addr, which must prove that it is peer. The host may
// be a name. Dial returns when both sides have accepted each other. It does not retry.
func (t *Transport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	life, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(transport.ErrClosed) })()
	c, err := t.dial(life, addr, peer)
	if err != nil {
		if life.Err() != nil && !errors.Is(err, transport.ErrIdentity) {
			err = context.Cause(life)
		}
		return nil, dialError(addr, err)
	}
	return c, nil
}

func (t *Transport) dial(ctx context.Context, addr, peer string) (*conn, error) {
	a, err := t.attempt(ctx, addr, magicControl)
	if err != nil {
		return nil, err
	}
	c, err := t.connectControl(a, peer)
	if err == nil {
		err = t.adopt(c)
	}
	if err != nil {
		a.fail()
		return nil, err
	}
	return c, nil
}

// connectControl completes the handshake on a new control socket.
func (t *Transport) connectControl(a *attempt, peer string) (*conn, error) {
	m := &controlHandshake{sock: a.sock, dialed: true}
	m.tls = tls.Client(a.flight, t.clientOfControl(peer, m))
	err := a.flight.handshake(m.tls)
	if err != nil {
		return nil, err
	}
	state := m.tls.ConnectionState()
	if m.peer, err = t.identify(state, peer); err != nil {
		return nil, err
	}
	if m.keys, err = deriveKeys(state); err != nil {
		return nil, err
	}
	// The greeting shows that the peer accepts our certificate. The end of a TLS 1.3
	// handshake does not.
	if m.peerGreeting, err = readGreeting(m.tls); err != nil {
		return nil, err
	}
	if err := a.commit(); err != nil {
		return nil, err
	}
	mine := t.greeting()
	if _, err := m.tls.Write(mine.append(nil)); err != nil {
		return nil, err
	}
	if err := a.flight.end(); err != nil {
		return nil, err
	}
	if err := mine.agree(m.peerGreeting); err != nil {
		return nil, err
	}
	t.setKeepAlive(m.sock)
	m.sock.SetDeadline(time.Time{})
	return t.newConn(m), nil
}

func (t *Transport) greeting() greeting {
	return greeting{plain: t.cfg.Plain, pipesMax: uint32(t.cfg.MaxPipes)}
}

// identify returns the authenticated identity of the other side of a TLS session, which
// must be want unless want is empty.
func (t *Transport) identify(state tls.ConnectionState, want string) (string, error) {
	if state.Version < tls.VersionTLS13 {
		return "", fmt.Errorf("%w: the peer does not support TLS 1.3", transport.ErrIdentity)
	}
	got, err := t.creds.Peer(state)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", transport.ErrIdentity, err)
	case got == "" && !t.cfg.Anonymous:
		return "", fmt.Errorf("%w: the peer has none", transport.ErrIdentity)
	case want != "" && got != want:
		return "", fmt.Errorf("%w: the peer is %q, want %q", transport.ErrIdentity, got, want)
	}
	return got, nil
}

// An attempt is a dialed socket with an incomplete handshake.
type attempt struct {
	sock   socket
	flight *flight // on sock
	ctx    context.Context
	stop   func() bool

	committed bool // ctx no longer matters
}

// attempt dials addr, and begins a flight with the magic. Until commit, Config.HandshakeTimeout and the end of ctx interrupt all use of the
// socket.
func (t *Transport) attempt(ctx context.Context, addr, magic string) (*attempt, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	limit := time.Now().Add(t.cfg.HandshakeTimeout)
	raw, err := t.connect(ctx, addr, limit)
	if err != nil {
		return nil, err
	}
	sock, ok := raw.(socket)
	if !ok {
		raw.Close()
		return nil, fmt.Errorf("%T is not a TCP connection", raw)
	}
	t.setTimeouts(sock)
	sock.SetDeadline(limit)
	a := &attempt{sock: sock, flight: newFlight(sock, magic), ctx: ctx}
	a.flight.limit, a.flight.over = t.cfg.HandshakeTimeout, func() bool { return !a.committed && ctx.Err() != nil }
	a.stop = context.AfterFunc(ctx, func() { sock.SetDeadline(past()) })
	return a, nil
}

// connectSockets is the number of sockets that are connected to an address without an answer. The kernel repeats a lost SYN
// only after a second (RFC 6298, section 2.1), and a node may have no more time to dial a broken link again.
const connectSockets = 3

// connect makes a TCP connection to one of the addresses of addr.
func (t *Transport) connect(ctx context.Context, addr string, limit time.Time) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	addrs, err := eyeballs.Resolve(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Deadline: limit, LocalAddr: t.local, ControlContext: bindLate}
	attempts := make([]eyeballs.Attempt[net.Conn], connectSockets*len(addrs))
	for i, addr := range addrs {
		for k, a := range eyeballs.Repeat(connectSockets, func(ctx context.Context, _ func()) (net.Conn, error) {
			sock, err := d.DialContext(ctx, "tcp", addr.String())
			t.files.Note(err)
			return sock, err
		}) {
			attempts[k*len(addrs)+i] = a
		}
	}
	r := eyeballs.Race[net.Conn]{Attempts: attempts, Discard: func(sock net.Conn) { sock.Close() }}
	winner, sock, errs := r.Run(ctx)
	if winner < 0 {
		return nil, errs[0]
	}
	return sock, nil
}

// commit detaches the attempt from its context. It fails if the context has ended.
func (a *attempt) commit() error {
	if !a.stop() {
		return context.Cause(a.ctx)
	}
	a.committed = true
	return nil
}

func (a *attempt) fail() {
	a.stop()
	a.sock.Close()
}

// dialSender opens the socket of a pipe of this side, or proposes to share one.
func (c *conn) dialSender(s *sender) {
	select {
	case <-c.peerReady:
	case <-c.ctx.Done():
	}
	c.dialOrShare(s.id, func() *pipeSocket { return c.dialSenderAlone(s) })
}

// dialOrShare opens the socket of a pipe by dial, or proposes to share that of its partner.
func (c *conn) dialOrShare(id uint32, dial func() *pipeSocket) {
	b, first := c.sharedFor(id)
	if first {
		b.set(dial())
	} else if ps := c.takeHalf(b); ps != nil {
		c.propose(msgShare, id, ps)
	} else {
		dial()
	}
}

// dialSenderAlone opens a new socket for a pipe of this side.
func (c *conn) dialSenderAlone(s *sender) *pipeSocket {
	ps, err := c.connect(s.id, s.commit)
	if err != nil {
		c.removeSender(s)
		err = fmt.Errorf("tcp: open a pipe: %w", handshakeError(err))
	}
	s.open(ps, err)
	return ps
}

// handleWant opens a socket for a pipe of the peer. The peer repeats the request if it could
// not use the proposed socket.
func (c *conn) handleWant(id uint32) error {
	if !c.dialed {
		return errors.New("the peer requested a socket that it must dial itself")
	}
	if ps := c.takeProposal(id); ps != nil {
		c.releaseHalf(id, ps)
		if r := c.receiver(id); r != nil {
			c.spawn(func() { c.dialReceiver(r) })
		}
		return nil
	}
	r, err := c.addReceiver(id)
	if err != nil {
		return err
	}
	c.spawn(func() { c.dialOrShare(id, func() *pipeSocket { return c.dialReceiver(r) }) })
	return nil
}

// dialReceiver opens a new socket for a pipe of the peer.
func (c *conn) dialReceiver(r *receiver) *pipeSocket {
	ps, err := c.connect(r.id, func() error { return nil })
	if err != nil {
		c.t.cfg.Log.Debug("tcp: cannot open a socket for a pipe of the peer", "peer", c.peer, "addr", c.remote, "err", err)
		c.removeReceiver(r)
		c.send(message{kind: msgCannot, pipe: r.id})
		return nil
	}
	c.deliver(r, ps)
	return ps
}

// handshakesMax is the number of sockets that are dialed one after the other for a pipe if the network breaks them during the
// handshake: the conn has not ended, so the process of the peer is alive.
const handshakesMax = 3

// connect dials a socket for a pipe and completes the handshake. It calls wanted before
// it confirms the pipe to the peer. The conn ends if the socket stalls. The peer keeps no
// state for sockets that break before it has this side's proof.
func (c *conn) connect(id uint32, wanted func() error) (*pipeSocket, error) {
	var in *pipeHandshake
	var err error
	for range handshakesMax {
		if in, err = c.startHandshake(id); err == nil || c.ctx.Err() != nil || !isBroken(err) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	defer c.endOpening(in.sock)
	if err := in.finish(wanted); err != nil {
		in.fail()
		return nil, err
	}
	return in.ps, nil
}

// An openingSocket is the socket of a handshake for a pipe.
type openingSocket struct {
	pipe  uint32
	stall stallClock
	over  atomic.Bool // The handshake has ended. The peer may still wait for its last bytes.
}

// beginOpening has the monitor sample the socket of a handshake.
func (c *conn) beginOpening(pipe uint32, sock socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening[sock] = &openingSocket{pipe: pipe}
	c.t.monitoring.note()
}

// endOpening is called when the handshake has ended. The monitor samples the socket until the peer has acknowledged all bytes.
func (c *conn) endOpening(sock socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening[sock].over.Store(true)
}

// A pipeHandshake is the handshake on the socket of a pipe, after the peer has proved
// itself.
type pipeHandshake struct {
	*attempt
	ps     *pipeSocket
	prover *prover // nil if the TLS session is that of the control socket
	claim  claim
}

// startHandshake dials a socket for a pipe and waits for the proof of the peer: its
// Finished message, if the TLS session is that of the control socket, and otherwise its
// challenge.
func (c *conn) startHandshake(id uint32) (in *pipeHandshake, err error) {
	magic := magicTLS
	if c.t.cfg.Plain {
		magic = magicPlain
	}
	a, err := c.t.attempt(c.ctx, c.remote, magic)
	if err != nil {
		return nil, err
	}
	c.beginOpening(id, a.sock)
	defer func() {
		if err != nil {
			c.endOpening(a.sock)
			a.fail()
		}
	}()
	in = &pipeHandshake{attempt: a, ps: newPipeSocket(a.flight), claim: claim{conn: c.keys.id, pipe: id}}
	if !c.t.cfg.Plain {
		if err := in.ps.startTLS(tls.Client, c.clientOfPipe()); err != nil {
			return nil, err
		}
		state := in.ps.tls.ConnectionState()
		if _, err := c.t.identify(state, c.peer); err != nil {
			return nil, err
		}
		if state.DidResume {
			return in, nil
		}
	}
	if in.prover, err = in.ps.prover(c.keys.proof, in.claim); err != nil {
		return nil, err
	}
	if err := in.prover.claimTo(in.ps.netConn()); err != nil {
		if err == errProof {
			err = fmt.Errorf("%w: %w", transport.ErrIdentity, err)
		}
		return nil, err
	}
	return in, nil
}

// finish sends the proof of this side, or the claim that needs none, and exchanges
// confirmations.
func (in *pipeHandshake) finish(wanted func() error) (err error) {
	rw := in.ps.netConn()
	if in.prover != nil {
		err = in.prover.prove(rw)
	} else {
		_, err = rw.Write(in.claim.append(nil))
	}
	if err != nil {
		return err
	}
	if err := readYes(rw); err != nil {
		return err
	}
	if err := in.commit(); err != nil {
		return err
	}
	if err := wanted(); err != nil {
		return err
	}
	if _, err := rw.Write([]byte{yes}); err != nil {
		return err
	}
	return in.ps.finishHandshake()
}

func readYes(r io.Reader) error {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if b[0] != yes {
		return fmt.Errorf("the peer sent %#x, want the confirmation %#x", b[0], yes)
	}
	return nil
}
