package tcp

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// acceptLoop takes sockets until the listener is closed.
func (t *Transport) acceptLoop() {
	defer close(t.acceptDone)
	failing := false
	for {
		raw, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.files.Note(err) // That is why, most likely.
			if !failing {
				t.cfg.Log.Warn("tcp: cannot take connections", "err", err)
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
			t.cfg.Log.Debug("tcp: refused a socket", "addr", plainAddr(sock.RemoteAddr()), "err", err)
			reset(sock)
			continue
		}
		t.setTimeouts(sock)
		t.tasks.Go(func() { t.serve(sock) })
	}
}

// pause waits, and reports whether the transport is still open.
func (t *Transport) sleep(d time.Duration) bool {
	ctx, cancel := context.WithTimeout(t.ctx, d)
	defer cancel()
	<-ctx.Done()
	return t.ctx.Err() == nil
}

// serve finds out what a socket is that somebody has dialed.
func (t *Transport) serve(sock socket) {
	sock.SetDeadline(time.Now().Add(t.cfg.HandshakeTimeout))
	err := t.handshake(sock)
	if err == nil {
		return
	}
	t.cfg.Log.Debug("tcp: refused a socket", "addr", plainAddr(sock.RemoteAddr()), "err", err)
	t.closeGracefully(sock)
	t.pending.discard(sock)
}

// dismiss closes a socket so that the other side can read why. To close it
// with something unread in it could take that away.
func (t *Transport) closeGracefully(sock socket) {
	defer sock.Close()
	if sock.CloseWrite() == nil {
		sock.SetReadDeadline(time.Now().Add(lingerMax / 4))
		io.CopyN(io.Discard, onlyReader{sock}, 64<<10)
	}
}

// onlyReader hides what else a socket can do from io.CopyN.
type onlyReader struct{ io.Reader }

var errEvicted = errors.New("it had to make way for others")

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
	case kind == magicMigrate:
		return t.acceptMigration(sock)
	default:
		return fmt.Errorf("it begins with %q", kind)
	}
}

// welcomeConn gets to know the peer at the other end of a control socket.
func (t *Transport) acceptConn(sock socket) error {
	m := controlHandshake{sock: sock, tls: tls.Server(sock, t.server)}
	err := m.tls.Handshake()
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
	if err := mine.agree(m.peerGreeting); err != nil {
		t.cfg.Log.Warn("tcp: refused a peer", "addr", plainAddr(sock.RemoteAddr()), "peer", m.peer, "err", err)
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
		t.cfg.Log.Warn("tcp: closed a conn, because too many wait to be accepted",
			"addr", c.remote, "peer", c.peer, "waiting", backlogMax)
		c.end(errConnClosed)
	}
	return nil
}

// welcomePipe finds the Conn and the pipe that a socket is for.
func (t *Transport) acceptPipe(sock socket) error {
	ps := &pipeSocket{socket: sock}
	if !t.cfg.Plain {
		if err := ps.startTLS(tls.Server, t.server); err != nil {
			return err
		}
	}
	rw := ps.netConn()
	said, err := readClaim(rw)
	if err != nil {
		return err
	}
	c := t.connByID(said.conn)
	if c == nil {
		return errors.New("it claims to belong to a conn that is not known")
	}
	if ps.tls != nil {
		if _, err := t.identify(ps.tls.ConnectionState(), c.peer); err != nil {
			return err
		}
	}
	p, err := ps.prover(c.keys.proof, said)
	if err != nil {
		return err
	}
	rand.Read(p.nonce[:])
	if _, err := rw.Write(challenge{p.nonce, p.accepting()}.append(nil)); err != nil {
		return err
	}
	var got proof
	if _, err := io.ReadFull(rw, got[:]); err != nil {
		return err
	}
	if !got.equal(p.dialing()) {
		return errors.New("it does not prove that it belongs to the conn that it claims")
	}
	if said.pipe%2 == 0 {
		return c.acceptReceiver(ps, said.pipe)
	}
	return c.acceptSender(ps, said.pipe)
}

// takeIncoming makes a socket the pipe that the peer has opened.
func (c *conn) acceptReceiver(ps *pipeSocket, id uint32) error {
	r, err := c.addReceiver(id)
	if err != nil {
		return err
	}
	if err := c.confirmPipe(ps); err != nil {
		c.settleShared(id, nil)
		c.removeReceiver(r)
		c.send(message{kind: msgDrop, pipe: id})
		return err
	}
	c.settleShared(id, ps)
	c.deliver(r, ps)
	return nil
}

// takeOutgoing makes a socket the pipe that this side has asked for.
func (c *conn) acceptSender(ps *pipeSocket, id uint32) error {
	s := c.sender(id)
	if s == nil {
		return errors.New("it is for a pipe that nobody has asked for")
	}
	if err := s.commit(); err != nil {
		if err == errOpenAbandoned {
			c.removeSender(s)
		}
		return err
	}
	if err := c.confirmPipe(ps); err != nil {
		c.settleShared(id, nil)
		c.removeSender(s)
		c.send(message{kind: msgEnd, pipe: id})
		s.open(nil, fmt.Errorf("tcp: open a pipe: %w", handshakeError(err)))
		return err
	}
	c.settleShared(id, ps)
	s.open(ps, nil)
	return nil
}

// agree says yes for this side, and hears it from the other one, which may count the
// pipe as open from then on. If this side does not, it has to tell by the control
// socket: the end of the socket alone would look like that of the peer.
func (c *conn) confirmPipe(ps *pipeSocket) error {
	if !c.t.pending.authenticate(ps.socket) {
		return errEvicted
	}
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

// surface hands a pipe of the peer to AcceptPipe. There is room: no more are
// registered than the backlog takes.
func (c *conn) deliver(r *receiver, ps *pipeSocket) {
	r.setSocket(ps)
	c.backlog <- r
}
