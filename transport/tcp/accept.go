package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/internal/eyeballs"
)

// acceptLoop accepts sockets until the listener is closed.
func (t *Transport) acceptLoop() {
	defer close(t.acceptDone)
	failing := false
	for {
		raw, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.files.Note(err) // the likely reason
			if !failing {
				t.cfg.Log.Warn("tcp: cannot accept connections", "err", err)
			}
			failing = true
			if !t.sleep(100 * time.Millisecond) {
				return
			}
			continue
		}
		failing = false
		sock, ok := raw.(socket)
		if !ok {
			raw.Close()
			continue
		}
		if err := t.pending.admit(sock, t.ctx.Done()); err != nil {
			t.cfg.Log.Debug("tcp: refused a socket", "addr", eyeballs.PlainAddr(sock.RemoteAddr()), "err", err)
			admission.Reset(sock)
			continue
		}
		t.setTimeouts(sock)
		t.tasks.Go(func() { t.serve(sock) })
	}
}

// sleep waits for d, and reports whether the transport is still open.
func (t *Transport) sleep(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.ctx, d)
	defer cancel()
	<-ctx.Done()
	return t.ctx.Err() == nil
}

// serve handles an accepted socket.
func (t *Transport) serve(sock socket) {
	sock.SetDeadline(time.Now().Add(t.cfg.HandshakeTimeout))
	err := t.handshake(sock)
	if err == nil {
		return
	}
	t.cfg.Log.Debug("tcp: refused a socket", "addr", eyeballs.PlainAddr(sock.RemoteAddr()), "err", err)
	t.closeGracefully(sock)
	t.pending.discard(sock)
}

// closeGracefully closes a socket so that the peer can read the reason. Closing it with
// unread data would reset it.
func (t *Transport) closeGracefully(sock socket) {
	defer sock.Close()
	if sock.CloseWrite() == nil {
		sock.SetReadDeadline(time.Now().Add(closeTimeout / 4))
		_, _ = io.CopyN(io.Discard, onlyReader{sock}, 64<<10)
	}
}

// onlyReader hides the other methods of a socket from io.CopyN.
type onlyReader struct{ io.Reader }

var errEvicted = errors.New("it was evicted: too many connections are not authenticated")

func (t *Transport) handshake(sock socket) error {
	var magic [magicBytes]byte
	if _, err := io.ReadFull(sock, magic[:]); err != nil {
		return err
	}
	switch kind := string(magic[:]); {
	case kind == magicControl:
		return t.acceptConn(sock)
	case kind == magicTLS && !t.cfg.Plain, kind == magicPlain && t.cfg.Plain:
		return t.acceptPipe(sock)
	default:
		return fmt.Errorf("it begins with %q, which is not a socket of this transport, or differs in Plain", kind)
	}
}

// acceptedFlight returns the flight of an accepted socket.
func (t *Transport) acceptedFlight(sock socket) *flight {
	f := newFlight(sock, "")
	f.limit = t.cfg.HandshakeTimeout
	return f
}

// A controlHandshake is the result of the handshake on a control socket.
type controlHandshake struct {
	sock            socket
	tls             *tls.Conn
	dialedSession   sessionStore // if dialed
	acceptedSession []byte       // if not dialed: an encoded tls.SessionState
	keys            keys
	peer            string
	dialed          bool
	peerGreeting    greeting
}

// acceptConn completes the handshake on a control socket.
func (t *Transport) acceptConn(sock socket) error {
	m, first := &controlHandshake{sock: sock}, t.acceptedFlight(sock)
	m.tls = tls.Server(first, t.serverOfControl(m))
	err := first.handshake(m.tls)
	if err != nil {
		return err
	}
	state := m.tls.ConnectionState()
	if m.peer, err = t.identify(state, ""); err != nil {
		return err
	}
	if m.keys, err = deriveKeys(state); err != nil {
		return err
	}
	mine := t.greeting()
	if _, err := m.tls.Write(mine.append(nil)); err != nil {
		return err
	}
	if m.peerGreeting, err = readGreeting(m.tls); err != nil {
		return err
	}
	if err := first.end(); err != nil {
		return err
	}
	if err := mine.agree(m.peerGreeting); err != nil {
		t.cfg.Log.Warn("tcp: refused a peer", "addr", eyeballs.PlainAddr(sock.RemoteAddr()), "peer", m.peer, "err", err)
		return err
	}
	if m.peer != "" && !t.pending.release(sock) {
		return errEvicted
	}
	t.setKeepAlive(sock)
	sock.SetDeadline(time.Time{})
	c := t.newConn(m)
	if err := t.adopt(c); err != nil {
		return err
	}
	if m.peer == "" {
		context.AfterFunc(c.ctx, func() { t.pending.discard(sock) })
	}
	select {
	case t.backlog <- c:
	default:
		t.cfg.Log.Warn("tcp: closed a connection: too many wait for Accept",
			"addr", c.remote, "peer", c.peer, "waiting", backlogMax)
		c.end(errConnClosed)
	}
	return nil
}

// acceptPipe completes the handshake on the socket of a pipe.
func (t *Transport) acceptPipe(sock socket) error {
	ps := newPipeSocket(t.acceptedFlight(sock))
	var resumed *conn
	if !t.cfg.Plain {
		if err := ps.startTLS(tls.Server, t.serverOfPipe(&resumed)); err != nil {
			return err
		}
		if !ps.tls.ConnectionState().DidResume {
			resumed = nil
		}
	}
	rw := ps.netConn()
	said, err := readClaim(rw)
	if err != nil {
		return err
	}
	c := t.connByID(said.conn)
	if c == nil {
		return errUnknownConn
	}
	if ps.tls != nil {
		if _, err := t.identify(ps.tls.ConnectionState(), c.peer); err != nil {
			return err
		}
	}
	switch resumed {
	case c: // the TLS session proves possession of the key
	case nil:
		p, err := ps.prover(c.keys.proof, said)
		if err != nil {
			return err
		}
		if err := p.challenge(rw); err != nil {
			return err
		}
	default:
		return errOtherConn
	}
	if said.pipe%2 == 0 {
		return c.acceptReceiver(ps, said.pipe)
	}
	return c.acceptSender(ps, said.pipe)
}

// acceptReceiver uses a socket for a pipe that the peer opens.
func (c *conn) acceptReceiver(ps *pipeSocket, id uint32) error {
	r, err := c.addReceiver(id)
	if err != nil {
		return err
	}
	if err := c.confirmPipe(id, ps); err != nil {
		c.settleShared(id, nil)
		c.removeReceiver(r)
		return err
	}
	c.settleShared(id, ps)
	c.deliver(r, ps)
	return nil
}

// acceptSender uses a socket for a pipe that this side has requested.
func (c *conn) acceptSender(ps *pipeSocket, id uint32) error {
	s := c.sender(id)
	if s == nil {
		return fmt.Errorf("it is for pipe %d, which this side has not requested", id)
	}
	if err := s.commit(); err != nil {
		if err == errOpenAbandoned {
			c.removeSender(s)
		}
		return err
	}
	if err := c.confirmPipe(id, ps); err != nil {
		c.settleShared(id, nil)
		c.removeSender(s)
		s.open(nil, fmt.Errorf("tcp: open a pipe: %w", handshakeError(err)))
		return err
	}
	c.settleShared(id, ps)
	s.open(ps, nil)
	return nil
}

// confirmPipe confirms a pipe to the peer and waits for its confirmation, after which the
// peer may count the pipe as open. If this side fails afterwards, the socket fails for the peer, and the conn ends.
func (c *conn) confirmPipe(id uint32, ps *pipeSocket) error {
	if !c.t.pending.authenticate(ps.socket) {
		return errEvicted
	}
	c.beginOpening(id, ps.socket)
	defer c.endOpening(ps.socket)
	rw := ps.netConn()
	if _, err := rw.Write([]byte{yes}); err != nil {
		return err
	}
	if err := readYes(rw); err != nil {
		return err
	}
	if !c.t.pending.release(ps.socket) {
		return errTransportClosed
	}
	return ps.finishHandshake()
}

// deliver passes a pipe of the peer to AcceptPipe. It does not block, since the backlog
// has room for all registered pipes.
func (c *conn) deliver(r *receiver, ps *pipeSocket) {
	r.setSocket(ps)
	c.backlog <- r
}
