// A Conn of this transport has a control stream and one stream for each pipe, so that a pipe that is not read
// does not delay others. The control stream carries a TLS session that authenticates both
// peers, and the messages that close a pipe or the Conn; if it ends without such a message, the
// peer is gone. The side that dialed the Conn dials all its streams. The stream of a pipe is in
// the clear; both ends first prove the possession of a key that is derived from the TLS
// session. Streams must therefore be protected from other processes. They must be ordered, and
// must deliver the bytes that are buffered when the writer closes.

package main

import (
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

const (
	handshakeTimeout = 10 * time.Second
	maxBacklog       = 1024 // number of Conns that wait for Accept, and of pipes that wait for AcceptPipe
	exporterLabel    = "EXPORTER-nexar-transport-unix"
)

// The first byte of a stream.
const (
	kindConn = 'C' // control stream
	kindPipe = 'P'
)

type streams struct {
	listener net.Listener // nil if the transport cannot accept
	dialer   func(ctx context.Context, addr string) (net.Conn, error)
	env      transport.Env
	accepted chan *conn
	ctx      context.Context // done after Close
	cancel   context.CancelFunc
	tasks    sync.WaitGroup // goroutines of the transport

	mu    sync.Mutex
	conns map[*conn]struct{} // nil after Close
	byKey map[string]*conn   // accepted conns
}

// newStreams returns a transport, which owns the listener from now on.
func newStreams(l net.Listener, env transport.Env) *streams {
	t := &streams{
		listener: l, dialer: dialUnix, env: env, accepted: make(chan *conn, maxBacklog),
		conns: make(map[*conn]struct{}), byKey: make(map[string]*conn),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if l != nil {
		t.tasks.Go(t.acceptStreams)
	}
	return t
}

func dialUnix(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", addr)
}

func (t *streams) Name() string { return name }

func (t *streams) Addr() string {
	if t.listener == nil {
		return "none"
	}
	return t.listener.Addr().String()
}

// Capabilities implements [transport.Capable].
func (t *streams) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameHost}
}

// acceptStreams accepts streams until Close.
func (t *streams) acceptStreams() {
	for {
		s, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.env.Log.Warn("accept failed", "transport", name, "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-t.ctx.Done():
				return
			}
		}
		t.tasks.Go(func() {
			stop := context.AfterFunc(t.ctx, func() { s.SetDeadline(past()) })
			defer stop()
			s.SetDeadline(time.Now().Add(handshakeTimeout))
			if err := t.handle(s); err != nil {
				t.env.Log.Debug("stream refused", "transport", name, "err", err)
				s.Close()
			}
		})
	}
}

// past returns a deadline that interrupts all blocked calls.
func past() time.Time { return time.Unix(1, 0) }

// handle handles an accepted stream. The caller closes it after an error.
func (t *streams) handle(s net.Conn) error {
	var kind [1]byte
	if _, err := io.ReadFull(s, kind[:]); err != nil {
		return err
	}
	switch kind[0] {
	case kindConn:
		c, err := t.handshake(tls.Server(s, t.env.Server), s, "")
		if err == nil {
			_, err = io.ReadFull(c.control, make([]byte, 1))
		}
		if err == nil {
			err = t.adopt(c)
		}
		if err != nil {
			return err
		}
		// The peer may dial pipes after this byte, so the conn is registered before it.
		if _, err := c.control.Write([]byte{kindConn}); err != nil {
			c.end(transport.ErrPeerGone)
			return nil //nolint:nilerr // only this conn has ended
		}
		select {
		case t.accepted <- c:
		default:
			c.Close()
		}
		return nil
	case kindPipe:
		return t.handlePipe(s)
	}
	return fmt.Errorf("first byte %#x: want %#x or %#x", kind[0], kindConn, kindPipe)
}

// Dial implements [transport.Transport].
func (t *streams) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := t.dial(ctx, addr, peer)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s: dial %q: %w", name, addr, err)
	}
	return c, nil
}

func (t *streams) dial(ctx context.Context, addr, peer string) (c *conn, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if t.ctx.Err() != nil {
		return nil, transport.ErrClosed
	}
	s, err := t.dialer(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrNotLocal, err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	s.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(past()) })
	if _, err = s.Write([]byte{kindConn}); err != nil {
		return nil, err
	}
	if c, err = t.handshake(tls.Client(s, t.env.Client(peer)), s, peer); err != nil {
		return nil, err
	}
	if _, err = c.control.Write([]byte{kindConn}); err != nil {
		return nil, err
	}
	if _, err = io.ReadFull(c.control, make([]byte, 1)); err != nil {
		return nil, err
	}
	c.dialed, c.addr = true, addr
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return c, t.adopt(c)
}

// handshake runs the TLS handshake on a control stream and checks the identity of the peer.
// Afterwards each side sends a byte: only that shows a TLS 1.3 client that the server has
// accepted it.
func (t *streams) handshake(control *tls.Conn, s net.Conn, peer string) (*conn, error) {
	got, err := t.env.Authenticate(control, peer)
	if err != nil {
		return nil, err
	}
	state := control.ConnectionState()
	key, err := state.ExportKeyingMaterial(exporterLabel, nil, 32)
	if err != nil {
		return nil, err
	}
	return newConn(t, control, s, got, key), nil
}

// adopt makes t the owner of a conn, and starts its control goroutine.
func (t *streams) adopt(c *conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		return transport.ErrClosed
	}
	c.stream.SetDeadline(time.Time{})
	t.conns[c] = struct{}{}
	if !c.dialed {
		c.next = 1
		t.byKey[c.id()] = c
	}
	t.tasks.Go(c.readControl)
	return nil
}

func (t *streams) forget(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	if t.byKey[c.id()] == c {
		delete(t.byKey, c.id())
	}
}

// handlePipe authenticates the stream of a pipe and passes it to its conn.
func (t *streams) handlePipe(s net.Conn) error {
	var h hello
	if err := h.read(s); err != nil {
		return err
	}
	t.mu.Lock()
	c := t.byKey[string(h.id[:])]
	t.mu.Unlock()
	if c == nil || !hmac.Equal(h.proof[:], c.proof("dial", h.pipe)) {
		return errors.New("the pipe belongs to an unknown connection, or its proof is wrong")
	}
	if _, err := s.Write(c.proof("accept", h.pipe)); err != nil {
		return err
	}
	return c.addStream(s, h.pipe)
}

// Accept implements [transport.Transport].
func (t *streams) Accept(ctx context.Context) (transport.Conn, error) {
	if t.ctx.Err() != nil {
		return nil, transport.ErrClosed
	}
	select {
	case c := <-t.accepted:
		return c, nil
	case <-t.ctx.Done():
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements [transport.Transport].
func (t *streams) Close() error {
	t.stop(func(c *conn) { c.Close() })
	return nil
}

// stop ends all conns by end, and waits for all goroutines.
func (t *streams) stop(end func(c *conn)) {
	t.cancel()
	if t.listener != nil {
		t.listener.Close()
	}
	t.mu.Lock()
	conns := t.conns
	t.conns = nil
	t.mu.Unlock()
	for c := range conns {
		end(c)
	}
	t.tasks.Wait()
}
