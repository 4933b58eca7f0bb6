package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// network is that of sockets which keep letters apart (SOCK_SEQPACKET).
const network = "unixpacket"

// A meeting is what two nodes know of each other before there is a conn.
type meeting struct {
	sock  *net.UnixConn
	box   postbox
	pid   int32    // of the peer
	peer  string   // its identity
	ears  int      // the bell that the peer will ring, or -1
	bell  int      // the bell of the peer, or -1
	areas *holding // or nil
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
	if !e.begin() {
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
	m, err := e.meet(ctx, sock, func(m *meeting) error { return m.dial(e, addr) })
	if err != nil {
		sock.Close()
		return nil, err
	}
	return e.adopt(m)
}

// connect connects to a socket at which somebody listens.
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
		// Too many wait for the peer to accept them. The kernel does not say
		// when it has.
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// meet runs one side of a meeting, which ends with ctx and with helloTimeout.
func (e *endpoint) meet(ctx context.Context, sock *net.UnixConn, side func(*meeting) error) (*meeting, error) {
	m := &meeting{sock: sock, box: postbox{sock: sock}, ears: -1, bell: -1}
	sock.SetDeadline(time.Now().Add(helloTimeout))
	interrupted := context.AfterFunc(ctx, func() { sock.SetDeadline(time.Unix(1, 0)) })
	err := m.checkUser()
	if err == nil {
		m.ears, err = newBell()
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

// checkUser refuses other users. The kernel knows who has connected, and who
// has listened.
func (m *meeting) checkUser() error {
	creds, err := credentials(m.sock)
	if err != nil {
		return err
	}
	if us := os.Geteuid(); creds.Uid != uint32(us) {
		return fmt.Errorf("%w: the process %d at the other end belongs to user %d, and this one to %d",
			transport.ErrIdentity, creds.Pid, creds.Uid, us)
	}
	m.pid = creds.Pid
	return nil
}

// credentials are those of the process at the other end.
func credentials(sock *net.UnixConn) (creds *unix.Ucred, err error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		creds, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return nil, fmt.Errorf("whose the peer is: %w", err)
	}
	return creds, nil
}

// dial is the side of who has dialed.
func (m *meeting) dial(e *endpoint, addr string) error {
	err := m.say(e, kindHello, addr)
	if err != nil && !hungUp(err) {
		return err
	}
	// Who has hung up may have said why.
	return m.hear(e, kindWelcome, addr)
}

// hungUp reports whether err, of a letter that was sent, means that the peer
// has closed the socket.
func hungUp(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET)
}

// accept is the side of who was dialed.
func (m *meeting) accept(e *endpoint) error {
	if err := m.hear(e, kindHello, ""); err != nil {
		return err
	}
	return m.say(e, kindWelcome, m.peer)
}

func (m *meeting) say(e *endpoint, kind byte, to string) error {
	h := hello{kind: kind, areas: uint32(e.areas.count), area: uint64(e.areas.each), cluster: e.cfg.Cluster, from: e.cfg.Node, to: to}
	files := []int{m.ears}
	if e.areas.size > 0 {
		files = append(files, e.areas.fd)
	}
	return post(m.sock, h.append(nil), files...)
}

// hear receives the letter of the peer and takes what comes with it.
func (m *meeting) hear(e *endpoint, kind byte, asked string) error {
	l, err := m.box.next()
	if err != nil {
		return fmt.Errorf("%w: no hello from process %d", err, m.pid)
	}
	defer l.drop()
	h, err := parseHello(l.text)
	if err == nil {
		err = h.check(kind, e.cfg.Cluster, e.cfg.Node, asked)
	}
	if err != nil {
		return err
	}
	files := 1
	if h.areas > 0 && h.area > 0 {
		files = 2
	}
	if len(l.files) != files {
		return fmt.Errorf("a hello with %d files, want %d", len(l.files), files)
	}
	if err := checkBell(l.files[0]); err != nil {
		return err
	}
	if files > 1 && h.areas == uint32(e.areas.count) && h.area == uint64(e.areas.each) {
		if m.areas, err = e.areas.mapPeer(l.files[1]); err != nil {
			return err
		}
	}
	m.peer = h.from
	m.bell, l.files = l.files[0], l.files[1:]
	return nil
}

// drop gives back what a meeting has that came to nothing. The caller closes the
// socket.
func (m *meeting) drop() {
	m.areas.Release()
	for _, fd := range []int{m.ears, m.bell} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
