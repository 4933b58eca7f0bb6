// Package stream makes a transport of anything that connects two processes of a host
// by streams of bytes, such as unix sockets: its user supplies how to dial and how to
// listen.
//
// A Conn is a control stream, and one stream for each pipe, so a pipe that is not read
// never delays another. On the control stream the peers prove who they are by TLS; it
// says when a pipe or the Conn was closed in good order, and its end without a word
// says that the peer is gone. The side that dialed the Conn dials all its streams. Those of pipes
// are in the clear, but both ends first prove that they know a key from the TLS session.
// The package is therefore for streams that nobody else can read or change, and
// which carry bytes in order and buffer them when their writer closes.
package stream

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

// Config says how streams are made.
type Config struct {
	// Name is that of the transport, and Locality says which peers it reaches.
	Name     string
	Locality transport.Locality
	// Listener accepts streams, and is closed by Close. Nil: the transport only dials.
	Listener net.Listener
	// Dial connects a stream to an address.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

const (
	handshakeLimit = 10 * time.Second
	backlogMax     = 1024 // Conns that wait for Accept, and pipes for AcceptPipe
	exporterLabel  = "EXPORTER-nexar-stream"
)

// The first byte of a stream says what it is.
const (
	kindConn = 'C'
	kindPipe = 'P'
)

type streams struct {
	cfg      Config
	env      transport.Env
	accepted chan *conn
	life     context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu    sync.Mutex
	conns map[*conn]struct{} // nil after Close
	byKey map[string]*conn   // those that were accepted
}

// New returns a transport that accepts Conns from the Listener.
func New(cfg Config, env transport.Env) (transport.Transport, error) {
	if cfg.Locality == transport.AnyHost || cfg.Name == "" || cfg.Dial == nil {
		return nil, errors.New("stream: a transport within a host needs a Name, a Locality and a Dial")
	}
	t := &streams{
		cfg: cfg, env: env, accepted: make(chan *conn, backlogMax),
		conns: make(map[*conn]struct{}), byKey: make(map[string]*conn),
	}
	t.life, t.cancel = context.WithCancel(context.Background())
	if cfg.Listener != nil {
		t.tasks.Go(t.listen)
	}
	return t, nil
}

func (t *streams) Name() string { return t.cfg.Name }

func (t *streams) Addr() string {
	if t.cfg.Listener == nil {
		return "none"
	}
	return t.cfg.Listener.Addr().String()
}

// Capabilities implements [transport.Capable].
func (t *streams) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: t.cfg.Locality}
}

func (t *streams) listen() {
	for {
		s, err := t.cfg.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.env.Log.Warn("cannot accept a stream", "transport", t.cfg.Name, "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-t.life.Done():
				return
			}
		}
		t.tasks.Go(func() {
			stop := context.AfterFunc(t.life, func() { s.SetDeadline(past()) })
			defer stop()
			s.SetDeadline(time.Now().Add(handshakeLimit))
			if err := t.welcome(s); err != nil {
				t.env.Log.Debug("refused a stream", "transport", t.cfg.Name, "err", err)
				s.Close()
			}
		})
	}
}

// past is a deadline that interrupts what blocks now.
func past() time.Time { return time.Unix(1, 0) }

func (t *streams) welcome(s net.Conn) error {
	var kind [1]byte
	if _, err := io.ReadFull(s, kind[:]); err != nil {
		return err
	}
	switch kind[0] {
	case kindConn:
		c, err := t.meet(tls.Server(s, t.env.Server), s, "")
		if err == nil {
			_, err = io.ReadFull(c.control, make([]byte, 1))
		}
		if err == nil {
			err = t.adopt(c)
		}
		if err != nil {
			return err
		}
		// The peer may dial pipes as soon as it has this.
		if _, err := c.control.Write([]byte{kindConn}); err != nil {
			c.end(transport.ErrPeerGone)
			return nil
		}
		select {
		case t.accepted <- c:
		default:
			c.Close()
		}
		return nil
	case kindPipe:
		return t.welcomePipe(s)
	}
	return fmt.Errorf("it begins with %#x", kind[0])
}

// Dial implements transport.Transport.
func (t *streams) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := t.dial(ctx, addr, peer)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%s: dial %q: %w", t.cfg.Name, addr, err)
	}
	return c, nil
}

func (t *streams) dial(ctx context.Context, addr, peer string) (c *conn, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	if t.life.Err() != nil {
		return nil, transport.ErrClosed
	}
	s, err := t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrNotLocal, err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	s.SetDeadline(time.Now().Add(handshakeLimit))
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(past()) })
	if _, err = s.Write([]byte{kindConn}); err != nil {
		return nil, err
	}
	if c, err = t.meet(tls.Client(s, t.client(peer)), s, peer); err != nil {
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

// client is the TLS configuration for dialing a peer. Its objections concern identity.
func (t *streams) client(peer string) *tls.Config {
	conf := t.env.Client(peer).Clone()
	if verify := conf.VerifyConnection; verify != nil {
		conf.VerifyConnection = func(state tls.ConnectionState) error {
			err := verify(state)
			if err != nil {
				err = fmt.Errorf("%w: %w", transport.ErrIdentity, err)
			}
			return err
		}
	}
	return conf
}

// meet makes a Conn of a control stream whose peer has proved its identity. Each side
// then sends a byte, since the end of a TLS 1.3 handshake does not tell the client
// that it is accepted.
func (t *streams) meet(control *tls.Conn, s net.Conn, peer string) (*conn, error) {
	if err := control.Handshake(); err != nil {
		return nil, err
	}
	state := control.ConnectionState()
	got, err := t.env.Peer(state)
	if err == nil && peer != "" && got != peer {
		err = fmt.Errorf("it is %q, not %q", got, peer)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", transport.ErrIdentity, err)
	}
	key, err := state.ExportKeyingMaterial(exporterLabel, nil, 32)
	if err != nil {
		return nil, err
	}
	return newConn(t, control, s, got, key), nil
}

// adopt makes t the owner of a Conn.
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
	t.tasks.Go(c.listen)
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

// welcomePipe gives a stream its place in a Conn.
func (t *streams) welcomePipe(s net.Conn) error {
	var h hello
	if err := h.read(s); err != nil {
		return err
	}
	t.mu.Lock()
	c := t.byKey[string(h.id[:])]
	t.mu.Unlock()
	if c == nil || !hmac.Equal(h.proof[:], c.proof("dial", h.pipe)) {
		return errors.New("it does not belong to a conn")
	}
	if _, err := s.Write(c.proof("accept", h.pipe)); err != nil {
		return err
	}
	return c.place(s, h.pipe)
}

// Accept implements transport.Transport.
func (t *streams) Accept(ctx context.Context) (transport.Conn, error) {
	if t.life.Err() != nil {
		return nil, transport.ErrClosed
	}
	select {
	case c := <-t.accepted:
		return c, nil
	case <-t.life.Done():
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Close implements transport.Transport.
func (t *streams) Close() error {
	t.stop(func(c *conn) { c.Close() })
	return nil
}

func (t *streams) stop(end func(c *conn)) {
	t.cancel()
	if t.cfg.Listener != nil {
		t.cfg.Listener.Close()
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
