package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/transport"
)

// network is the network of sockets that preserve messages (SOCK_SEQPACKET).
const network = "unixpacket"

// A handshake is the state of a connection until both nodes have identified themselves.
type handshake struct {
	sock      *net.UnixConn
	box       messageReader
	pid       int32    // of the peer
	peer      string   // its identity
	ownEvent  int      // the eventfd that the peer signals, or -1
	peerEvent int      // the eventfd of the peer, or -1
	areas     *areaRef // nil if the nodes share no areas
}

// Dial implements transport.Transport.
func (e *endpoint) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := e.dial(ctx, addr, peer)
	if err != nil {
		return nil, fmt.Errorf("shm: dial %q: %w", addr, err)
	}
	return c, nil
}

func (e *endpoint) dial(ctx context.Context, addr, peer string) (*conn, error) {
	if !e.startTask() {
		return nil, transport.ErrClosed
	}
	defer e.tasks.Done()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if peer != "" && peer != addr {
		return nil, fmt.Errorf("%w: asked for %q", transport.ErrIdentity, peer)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.life, func() { cancel(transport.ErrClosed) })()

	sock, err := connect(ctx, socketName(e.cfg.Cluster, addr))
	if err != nil {
		return nil, err
	}
	m, err := e.handshake(ctx, sock, func(m *handshake) error { return m.dial(e, addr) })
	if err != nil {
		sock.Close()
		return nil, err
	}
	return e.adopt(m)
}

// connect connects to the socket with this name. It returns [ErrNotLocal] if no process
// listens there.
func connect(ctx context.Context, name string) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		sock, err := d.DialContext(ctx, network, name)
		switch {
		case err == nil:
			return sock.(*net.UnixConn), nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, unix.ECONNREFUSED):
			return nil, ErrNotLocal
		case !errors.Is(err, unix.EAGAIN):
			return nil, err
		}
		// The backlog of the peer is full. The kernel does not report when it has room.
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// handshake runs one side of a handshake. It ends with ctx, and after deadline.Handshake.
func (e *endpoint) handshake(ctx context.Context, sock *net.UnixConn, side func(*handshake) error) (*handshake, error) {
	m := &handshake{sock: sock, box: messageReader{sock: sock}, ownEvent: -1, peerEvent: -1}
	sock.SetDeadline(time.Now().Add(deadline.Handshake))
	interrupted := context.AfterFunc(ctx, func() { sock.SetDeadline(time.Unix(1, 0)) })
	err := m.checkUser()
	if err == nil {
		m.ownEvent, err = newEventFD()
	}
	if err == nil {
		err = side(m)
	}
	if !interrupted() {
		err = context.Cause(ctx)
	}
	if err != nil {
		m.drop()
		return nil, err
	}
	sock.SetDeadline(time.Time{})
	return m, nil
}

// checkUser refuses processes of other users. The kernel knows the users of both sides.
func (m *handshake) checkUser() error {
	creds, err := credentials(m.sock)
	if err != nil {
		return err
	}
	if us := os.Geteuid(); creds.Uid != uint32(us) {
		return fmt.Errorf("%w: the peer, process %d, belongs to user %d, this process to user %d",
			transport.ErrIdentity, creds.Pid, creds.Uid, us)
	}
	m.pid = creds.Pid
	return nil
}

// credentials returns the credentials of the process of the peer.
func credentials(sock *net.UnixConn) (creds *unix.Ucred, err error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		creds, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return nil, fmt.Errorf("credentials of the peer: %w", err)
	}
	return creds, nil
}

// dial runs the dialing side.
func (m *handshake) dial(e *endpoint, addr string) error {
	err := m.sendHello(e, kindHello, addr)
	if err != nil && !hungUp(err) {
		return err
	}
	// A peer that has closed the socket may have sent a refusal before.
	return m.receiveHello(e, kindWelcome, addr)
}

// hungUp reports whether the error of a send means that the peer has closed the socket.
func hungUp(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// accept runs the accepting side.
func (m *handshake) accept(e *endpoint) error {
	if err := m.receiveHello(e, kindHello, ""); err != nil {
		return err
	}
	return m.sendHello(e, kindWelcome, m.peer)
}

func (m *handshake) sendHello(e *endpoint, kind byte, to string) error {
	h := hello{kind: kind, areas: uint32(e.areas.count), area: uint64(e.areas.each), cluster: e.cfg.Cluster, from: e.cfg.Node, to: to}
	files := []int{m.ownEvent}
	if e.areas.size > 0 {
		files = append(files, e.areas.fd)
	}
	return sendMessage(m.sock, h.append(nil), files...)
}

// receiveHello receives the hello or welcome of the peer, and takes over its files.
func (m *handshake) receiveHello(e *endpoint, kind byte, dialed string) error {
	l, err := m.box.next()
	if err != nil {
		return fmt.Errorf("%w: no hello from process %d", err, m.pid)
	}
	defer l.close()
	h, err := parseHello(l.text)
	if err == nil {
		err = h.check(kind, e.cfg.Cluster, e.cfg.Node, dialed)
	}
	if err != nil {
		return err
	}
	files := 1
	if h.areas > 0 && h.area > 0 {
		files = 2
	}
	if len(l.files) != files {
		return fmt.Errorf("its hello has %d files, want %d", len(l.files), files)
	}
	if err := checkEventFD(l.files[0]); err != nil {
		return err
	}
	if files > 1 && h.areas == uint32(e.areas.count) && h.area == uint64(e.areas.each) {
		if m.areas, err = e.areas.mapPeer(l.files[1]); err != nil {
			return err
		}
	}
	m.peer = h.from
	m.peerEvent, l.files = l.files[0], l.files[1:]
	return nil
}

// drop closes the files of a failed handshake, except the socket.
func (m *handshake) drop() {
	m.areas.Release()
	for _, fd := range []int{m.ownEvent, m.peerEvent} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
