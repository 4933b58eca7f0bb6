package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// tlsTransport is TLS over TCP with one pipe in each direction, as joining needs. A client
// controls every byte.
type tlsTransport struct {
	l      net.Listener
	conf   *tls.Config
	creds  pki.Joining
	remote func(string) string // changes the address for RemoteAddr
	conns  chan transport.Conn
	closed chan struct{}
	wg     sync.WaitGroup
}

func newTLSTransport(t testing.TB, creds pki.Joining) *tlsTransport {
	t.Helper()
	return listenTLS(t, "127.0.0.1:0", creds)
}

func listenTLS(t testing.TB, addr string, creds pki.Joining) *tlsTransport {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	tr := &tlsTransport{l: l, conf: creds.Server(), creds: creds, conns: make(chan transport.Conn), closed: make(chan struct{})}
	tr.wg.Go(tr.accept)
	t.Cleanup(func() { tr.Close() })
	return tr
}

func (t *tlsTransport) accept() {
	for {
		raw, err := t.l.Accept()
		if err != nil {
			return
		}
		t.wg.Go(func() {
			c := tls.Server(raw, t.conf)
			c.SetDeadline(time.Now().Add(10 * time.Second))
			if c.Handshake() != nil {
				raw.Close()
				return
			}
			c.SetDeadline(time.Time{})
			conn := newTLSConn(c, t.remote)
			select {
			case t.conns <- conn:
			case <-t.closed:
				conn.Close()
			}
		})
	}
}

func (t *tlsTransport) Name() string { return "tls" }
func (t *tlsTransport) Addr() string { return t.l.Addr().String() }

func (t *tlsTransport) Dial(ctx context.Context, addr, _ string) (transport.Conn, error) {
	return dialTLS(ctx, addr)
}

func (t *tlsTransport) Accept(ctx context.Context) (transport.Conn, error) {
	select {
	case c := <-t.conns:
		return c, nil
	case <-t.closed:
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *tlsTransport) Close() error {
	select {
	case <-t.closed:
		return nil
	default:
	}
	close(t.closed)
	err := t.l.Close()
	t.wg.Wait()
	return err
}

// dialTLS connects as a node that joins.
func dialTLS(ctx context.Context, addr string) (transport.Conn, error) {
	d := tls.Dialer{Config: pki.Joining{}.Client("")}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return newTLSConn(c.(*tls.Conn), nil), nil
}

// dialRaw returns the TLS session alone.
func dialRaw(t testing.TB, addr string) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", addr, pki.Joining{}.Client(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

type tlsConn struct {
	c      *tls.Conn
	remote string
	data   chan []byte // received bytes; closed at the end of the pipe
	rest   []byte
	done   chan struct{}
	once   sync.Once
	err    error
	pump   sync.WaitGroup

	mu       sync.Mutex
	deadline chan struct{} // closed when the read deadline has passed
	timer    *time.Timer
}

func newTLSConn(c *tls.Conn, remote func(string) string) *tlsConn {
	t := &tlsConn{c: c, remote: c.RemoteAddr().String(), data: make(chan []byte, 1<<12), done: make(chan struct{}), deadline: make(chan struct{})}
	if remote != nil {
		t.remote = remote(t.remote)
	}
	t.pump.Go(t.receive)
	return t
}

// receive reads to the end of the TLS session, and then of the TCP conn.
func (t *tlsConn) receive() {
	for {
		p := make([]byte, 4096)
		n, err := t.c.Read(p)
		if n > 0 {
			t.data <- p[:n]
		}
		if err != nil {
			close(t.data)
			if err == io.EOF {
				t.c.NetConn().Read(p)
				err = transport.ErrPeerClosed
			} else {
				err = errors.Join(transport.ErrPeerGone, err)
			}
			t.end(err)
			return
		}
	}
}

func (t *tlsConn) end(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
		t.c.NetConn().Close()
	})
}

func (t *tlsConn) Peer() string                         { return "" }
func (t *tlsConn) RemoteAddr() string                   { return t.remote }
func (t *tlsConn) ConnectionState() tls.ConnectionState { return t.c.ConnectionState() }

func (t *tlsConn) Capabilities() transport.Capabilities { return transport.Capabilities{TLSConn: t} }
func (t *tlsConn) Done() <-chan struct{}                { return t.done }

func (t *tlsConn) Err() error {
	select {
	case <-t.done:
		return t.err
	default:
		return nil
	}
}

func (t *tlsConn) Close() error {
	t.end(transport.ErrClosed)
	t.pump.Wait()
	return nil
}

func (t *tlsConn) OpenPipe(context.Context) (transport.Sender, error) { return tlsSender{t}, nil }

// AcceptPipe returns when the peer has written something.
func (t *tlsConn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	first := func(p []byte, ok bool) (transport.Receiver, error) {
		if !ok {
			return nil, transport.ErrPeerClosed
		}
		t.rest = p
		return (*tlsReceiver)(t), nil
	}
	select {
	case p, ok := <-t.data:
		return first(p, ok)
	case <-t.done:
		select {
		case p, ok := <-t.data: // bytes before the end
			return first(p, ok)
		default:
			return nil, t.err
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type tlsSender struct{ t *tlsConn }

func (s tlsSender) Write(p []byte) (int, error)        { return s.t.c.Write(p) }
func (s tlsSender) SetWriteDeadline(d time.Time) error { return s.t.c.SetWriteDeadline(d) }
func (s tlsSender) Close() error                       { return s.t.c.CloseWrite() }

type tlsReceiver tlsConn

func (r *tlsReceiver) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		r.mu.Lock()
		late := r.deadline
		r.mu.Unlock()
		select {
		case b, ok := <-r.data:
			if !ok {
				if err := (*tlsConn)(r).Err(); err != nil && !errors.Is(err, transport.ErrPeerClosed) {
					return 0, err
				}
				return 0, io.EOF
			}
			r.rest = b
		case <-late:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *tlsReceiver) ReadFunc(int, func([]byte)) (int, error) { panic("joining does not use it") }

func (r *tlsReceiver) SetReadDeadline(d time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
	}
	late := make(chan struct{})
	r.deadline = late
	r.timer = time.AfterFunc(time.Until(d), func() { close(late) })
	return nil
}

func (r *tlsReceiver) Close() error { return nil }

// A node with Roots refuses a seed if none of them has signed the CA of its cluster. The certificate that
// the seed has shown in the TLS handshake makes no difference.
func TestRootsRefuseTheClusterCA(t *testing.T) {
	cert, _ := testpeer.NewUserCA(t, "ours", nil)
	roots, err := pki.ReadRoots(t.Context(), cert)
	if err != nil {
		t.Fatal(err)
	}
	s := newSeed(t, 1, nil)
	req := s.request(0)
	req.Roots = roots
	conn, err := s.dial(t.Context(), s.addr)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Join(t.Context(), conn, req)
	if !errors.Is(err, transport.ErrIdentity) || !strings.Contains(err.Error(), "CN=ours") || !strings.Contains(err.Error(), s.cfg.Authority.Cluster()) {
		t.Errorf("error %v, want ErrIdentity with both CAs", err)
	}
}
