//go:build linux

// Package rdma is a transport over RDMA hardware, or over the software RDMA of Linux: RoCE v2 or InfiniBand.
// It opens libibverbs at run time and needs no cgo.
//
//	node, err := nexar.Join(ctx, nexar.Config{Factories: []transport.Factory{rdma.Factory(rdma.Config{})}})
//
// A Conn is a reliable connection of two queue pairs (QPs). The peers exchange the data of their QPs over a TCP
// connection with TLS, which authenticates both and stays open: its end is the end of the Conn. Payloads on the
// QPs are in the clear, as with all RDMA: use the transport on networks that you trust.
//
// Pipes are messages to receive buffers of the peer. A sender has a credit of buffers for each pipe, so
// that there is a buffer for each message and pipes do not delay each other. With the capability RemoteMemory, the
// peer writes into memory of this node while a grant stands, which is a memory window of type 2 for one QP.
package rdma

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// Name is the name of the transport.
const Name = "rdma"

// A Config is the configuration of a transport. The zero value chooses the first device with an active port. If Device, Port and GID are
// zero, the variables DeviceVariable, PortVariable and GIDVariable apply, if they are set.
type Config struct {
	// Device and Port are the device, such as "mlx5_0", and its port, from 1 on. Port needs Device.
	Device string
	Port   int
	// GID is the address of the port for packets: an index of the table of the port, or an address such as
	// "10.0.0.1". By default a routable address of RoCE v2 is preferred.
	GID string
	// MTU is the maximal payload of a packet in bytes, a power of 2 from 256 to 4096. The default is that of the
	// port. Two peers use the smaller one.
	MTU int
	// ServiceLevel, from 0 to 15, and TrafficClass, from 0 to 255, are written into the headers of packets.
	ServiceLevel, TrafficClass int
	// Listen is the "host:port" for the TCP connections of peers. The default is a free port of the
	// host of transport.Env.Listen, or of all addresses if that has no host.
	Listen string
	// PinMin is the least length in bytes of a slice of the Go heap that is registered for one write; shorter ones are
	// copied to registered buffers. The default is 256 KiB. Memory of [transport.Map] is never copied.
	PinMin int
	// CacheBytes bounds the memory of [transport.Map] that stays registered. The default is 1 GiB.
	CacheBytes int
	// Stall is the time without a completion after which a queue pair with work requests has failed: its Conn ends. The default is a
	// quarter of HeartbeatTimeout of nexar.Config, at most 2 s, so that the peer does not count as failed before. Operations
	// fail if the sum of Stall and the time between two beats exceeds HeartbeatTimeout.
	Stall time.Duration
	// Counters, if not nil, count the work of the transport. Several transports can share them.
	Counters *Counters

	unproved admission.Limits // of connections without a proof of the peer; the zero value for the defaults
}

// Factory returns the factory of the transport.
func Factory(cfg Config) transport.Factory {
	return transport.Factory{Name: Name, Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
		return New(cfg, env)
	}}
}

const (
	handshakeTimeout = 10 * time.Second
	stallMax         = 2 * time.Second // the longest default of Config.Stall
	maxBacklog       = 1024            // number of Conns that wait for Accept, and of pipes that wait for AcceptPipe
)

// An rdma is the transport.
type rdma struct {
	cfg      Config
	env      transport.Env
	dev      *device // nil in a process that only dials seeds
	listener net.Listener
	accepted chan *conn
	ctx      context.Context // done after Close
	cancel   context.CancelFunc
	limiter  *admission.Gate // of accepted connections without a proof of the peer
	tasks    sync.WaitGroup  // goroutines of the transport
	closing  sync.Once

	mu    sync.Mutex
	conns map[*conn]struct{} // nil after Close
}

// New starts a transport. If env has no Server, Dial fails: seeds are reached over other transports.
func New(cfg Config, env transport.Env) (transport.Transport, error) {
	cfg.Counters = cmp.Or(cfg.Counters, new(Counters))
	cfg.Stall = cmp.Or(max(cfg.Stall, 0), defaultStall(env.PeerTimeout))
	t := &rdma{cfg: cfg, env: env, accepted: make(chan *conn, maxBacklog), conns: make(map[*conn]struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.limiter = admission.NewGate(cfg.unproved)
	if env.Server == nil {
		return t, nil
	}
	var err error
	if t.dev, err = openDevice(cfg); err != nil {
		return nil, fmt.Errorf("rdma: %w", err)
	}
	if t.listener, err = net.Listen("tcp", cmp.Or(cfg.Listen, anyPort(env.Listen))); err != nil {
		t.dev.close()
		return nil, fmt.Errorf("rdma: %w", err)
	}
	t.tasks.Go(t.acceptAll)
	t.tasks.Go(func() { t.dev.watch(t.deviceFailed) })
	return t, nil
}

// anyPort returns a "host:port" with port 0: the system chooses a free one.
func anyPort(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = ""
	}
	return net.JoinHostPort(host, "0")
}

func (t *rdma) Name() string { return Name }

func (t *rdma) Addr() string {
	if t.listener == nil {
		return "none"
	}
	return t.listener.Addr().String()
}

// Capabilities implements [transport.Capable].
func (t *rdma) Capabilities() transport.Capabilities {
	return transport.Capabilities{Class: transport.ClassTCP, Clear: true}
}

// acceptAll accepts TCP connections until Close.
func (t *rdma) acceptAll() {
	for {
		s, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			t.env.Log.Warn("accept failed", "transport", Name, "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-t.ctx.Done():
				return
			}
		}
		// It blocks while there is no room, so that other connections wait in the kernel.
		ticket, err := t.limiter.Enter(t.ctx.Done(), admission.SourceOfPeer(s), func() { s.Close() })
		if err != nil {
			t.env.Log.Debug("connection refused", "transport", Name, "err", err)
			s.Close()
			continue
		}
		t.tasks.Go(func() {
			defer ticket.Leave()
			s.SetDeadline(time.Now().Add(handshakeTimeout))
			defer context.AfterFunc(t.ctx, func() { s.SetDeadline(past) })() // after the other deadline, which it replaces
			if err := t.handle(s, ticket); err != nil {
				t.env.Log.Debug("connection refused", "transport", Name, "err", err)
				s.Close()
			}
		})
	}
}

// past is a deadline that interrupts all blocked calls.
var past = time.Unix(1, 0)

// readReady reads the byte that ends the handshake.
func readReady(r io.Reader) error {
	var b [1]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	switch b[0] {
	case ctlFailed:
		return readFailure(r)
	case ctlReady:
		return nil
	}
	return fmt.Errorf("the handshake ends with %q, want %q", b[0], ctlReady)
}

// handle makes a conn of an accepted connection. The caller closes it after an error.
func (t *rdma) handle(s net.Conn, ticket *admission.Ticket) error {
	control := tls.Server(s, t.env.Server)
	peer, err := t.env.Authenticate(control, "")
	if err != nil {
		return err
	}
	if !ticket.Prove() {
		return errors.New("closed to make room for others")
	}
	c, err := newConn(t, control, s, peer)
	if err == nil {
		if err = c.exchange(); err == nil {
			err = readReady(control) // The peer is connected.
		}
		if err == nil {
			err = t.adopt(c)
		}
		if err != nil {
			c.discard()
		}
	}
	if err != nil {
		_, _ = control.Write(farewell(err)) // The end of the connection alone would say that this process has ended.
		return err
	}
	if _, err := control.Write([]byte{ctlReady}); err != nil {
		c.end(transport.ErrPeerGone)
		return nil //nolint:nilerr // only this conn has ended
	}
	select {
	case t.accepted <- c:
	default:
		c.Close()
	}
	return nil
}

// Dial implements [transport.Transport].
func (t *rdma) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := t.dial(ctx, addr, peer)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if errors.Is(err, errFailed) {
			err = fmt.Errorf("%w: %w", err, syscall.ENETDOWN) // The process of the peer answers.
		}
		return nil, fmt.Errorf("rdma: dial %q: %w", addr, err)
	}
	return c, nil
}

func (t *rdma) dial(ctx context.Context, addr, peer string) (c *conn, err error) {
	if t.dev == nil {
		return nil, errors.New("seeds are not reached over RDMA, but over another transport")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	if t.ctx.Err() != nil {
		return nil, transport.ErrClosed
	}
	s, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	s.SetDeadline(time.Now().Add(handshakeTimeout))
	stop := context.AfterFunc(ctx, func() { s.SetDeadline(past) })
	control := tls.Client(s, t.env.Client(peer))
	got, err := t.env.Authenticate(control, peer)
	if err != nil {
		return nil, err
	}
	if c, err = newConn(t, control, s, got); err != nil {
		return nil, err
	}
	c.dialed, c.addr = true, addr
	if err = c.exchange(); err == nil {
		_, err = control.Write([]byte{ctlReady})
	}
	if err == nil {
		err = readReady(control) // The peer has adopted the conn.
	}
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = t.adopt(c)
	}
	if err != nil {
		c.discard()
		return nil, err
	}
	return c, nil
}

// adopt makes t the owner of a conn and starts its goroutines.
func (t *rdma) adopt(c *conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		return transport.ErrClosed
	}
	c.tcp.SetDeadline(time.Time{})
	t.conns[c] = struct{}{}
	t.tasks.Go(c.run)
	t.tasks.Go(c.readControl)
	return nil
}

func (t *rdma) forget(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// Accept implements [transport.Transport].
func (t *rdma) Accept(ctx context.Context) (transport.Conn, error) {
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

// deviceFailed ends all conns, because the device or its port has failed.
func (t *rdma) deviceFailed(reason error) {
	if t.ctx.Err() != nil {
		return // Close ends the conns.
	}
	t.env.Log.Warn("the RDMA device has failed", "device", t.dev.d.Name, "port", t.dev.port.Number, "err", reason)
	for _, c := range t.all() {
		c.end(fmt.Errorf("%w: %w", errFailed, reason))
	}
}

func (t *rdma) all() (list []*conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.conns {
		list = append(list, c)
	}
	return list
}

// Close implements [transport.Transport].
func (t *rdma) Close() error {
	t.stop(func(c *conn) { c.Close() })
	return nil
}

// stop ends all conns by end, and waits for all goroutines.
func (t *rdma) stop(end func(c *conn)) {
	t.closing.Do(func() {
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
		if t.dev != nil {
			t.dev.interrupt()
		}
		t.tasks.Wait()
		if t.dev != nil {
			t.dev.close()
		}
	})
}
