package shm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

const (
	// connsMax is the number of conns that may wait for Accept. More are refused.
	connsMax = 1024
	// handshakesMax is the number of handshakes with clients that may be in progress.
	handshakesMax = 256
)

// An endpoint is the Transport of one node.
type endpoint struct {
	cfg        Config
	ringBytes  int           // of pipes
	largeBytes int           // of large pipes
	spinMax    time.Duration // the longest time that pipes spin
	spinners   spinners
	reserve    func(b []byte) error // reserveMemory, unless a test replaces it
	ln         *net.UnixListener
	areas      *areas
	reclaimer  reclaimer
	backlog    chan *conn // wait for Accept
	handshakes chan struct{}
	life       context.Context // ends with Close
	cancel     context.CancelCauseFunc
	tasks      sync.WaitGroup // goroutines, and dials in progress
	shut       sync.Once

	mu    sync.Mutex
	ended bool
	conns map[*conn]struct{}
}

// socketName returns the name of a node's socket in the abstract namespace: a digest, since
// the names of cluster and node are too long.
func socketName(cluster, node string) string {
	sum := sha256.Sum256(hello{cluster: cluster, to: node}.append(nil))
	return "@nexar-" + hex.EncodeToString(sum[:16])
}

func newEndpoint(cfg Config) (transport.Transport, error) {
	e := &endpoint{
		cfg:        cfg,
		ringBytes:  ringBytes,
		largeBytes: largeBytes,
		spinMax:    spinMax,
		reserve:    reserveMemory,
		spinners:   spinners{max: int32(runtime.GOMAXPROCS(0))},
		backlog:    make(chan *conn, connsMax),
		handshakes: make(chan struct{}, handshakesMax),
		conns:      make(map[*conn]struct{}),
	}
	e.reclaimer = reclaimer{reclaim: e.reclaim, every: idleTime}
	name := socketName(cfg.Cluster, cfg.Node)
	ln, err := net.ListenUnix(network, &net.UnixAddr{Net: network, Name: name})
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			err = nameTakenError(name)
		}
		return nil, fmt.Errorf("shm: listen as %q: %w", cfg.Node, err)
	}
	e.ln = ln
	if e.areas, err = newAreas(cfg); err != nil {
		ln.Close()
		return nil, fmt.Errorf("shm: make an area: %w", err)
	}
	e.life, e.cancel = context.WithCancelCause(context.Background())
	e.tasks.Go(e.acceptLoop)
	return e, nil
}

// nameTakenError returns the error for a name that another process has.
func nameTakenError(name string) error {
	sock, err := net.DialUnix(network, nil, &net.UnixAddr{Net: network, Name: name})
	if err != nil {
		return errors.New("the name is taken on this host")
	}
	defer sock.Close()
	creds, err := credentials(sock)
	if err != nil {
		return fmt.Errorf("the name is taken on this host: %w", err)
	}
	return fmt.Errorf("the name is taken on this host, by process %d of user %d", creds.Pid, creds.Uid)
}

func (e *endpoint) Name() string { return "shm" }
func (e *endpoint) Addr() string { return e.cfg.Node }

// Capabilities implements [transport.Capable].
func (e *endpoint) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameHost, Class: transport.ClassMemory, HostMemory: e}
}

// Accept implements transport.Transport.
func (e *endpoint) Accept(ctx context.Context) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if e.life.Err() == nil {
		select {
		case c := <-e.backlog:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.life.Done():
		}
	}
	return nil, fmt.Errorf("shm: accept as %q: %w", e.cfg.Node, transport.ErrClosed)
}

// Close implements transport.Transport.
func (e *endpoint) Close() error {
	e.shut.Do(func() {
		e.mu.Lock()
		e.ended = true
		conns := e.conns
		e.conns = nil
		e.mu.Unlock()

		e.cancel(transport.ErrClosed)
		e.reclaimer.end()
		e.ln.Close()
		for c := range conns {
			c.end(transport.ErrClosed)
		}
		e.tasks.Wait()
		e.areas.close()
	})
	return nil
}

// startTask adds a task that Close waits for. It reports false after Close.
func (e *endpoint) startTask() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.tasks.Add(1)
	return true
}

// reclaim returns the memory of idle rings to the system, and reports whether a later call may
// return more.
func (e *endpoint) reclaim() (more bool) {
	if !e.startTask() {
		return false
	}
	defer e.tasks.Done()
	e.mu.Lock()
	conns := slices.Collect(maps.Keys(e.conns))
	e.mu.Unlock()
	for _, c := range conns {
		for _, end := range c.allEnds() {
			if end.reclaim != nil && end.reclaim() {
				more = true
			}
		}
	}
	return more
}

// acceptLoop accepts clients. Each has a goroutine for its handshake.
func (e *endpoint) acceptLoop() {
	for {
		sock, err := e.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			e.cfg.Log.Warn("shm: cannot accept a client", "err", err)
			select {
			case <-time.After(10 * time.Millisecond): // as when the process has no more file descriptors
			case <-e.life.Done():
			}
			continue
		}
		select {
		case e.handshakes <- struct{}{}:
			e.tasks.Go(func() {
				e.receive(sock)
				<-e.handshakes
			})
		default:
			_ = trySendMessage(sock, refuse(errors.New("too many handshakes are in progress")).append(nil))
			sock.Close()
		}
	}
}

// receive runs the handshake with a client. It sends a refusal if that fails.
func (e *endpoint) receive(sock *net.UnixConn) {
	m, err := e.handshake(e.life, sock, func(m *handshake) error { return m.accept(e) })
	if hungUp(err) || errors.Is(err, io.EOF) {
		// It gave up: a node stops dialing when its peer has dialed it, or when it leaves.
		e.cfg.Log.Debug("shm: a client has gone away", "err", err)
		sock.Close()
		return
	}
	if err != nil {
		level := slog.LevelWarn
		if e.life.Err() != nil { // This node closes.
			level = slog.LevelDebug
		}
		e.cfg.Log.Log(context.Background(), level, "shm: refused a client", "err", err)
		_ = trySendMessage(sock, refuse(err).append(nil))
		sock.Close()
		return
	}
	c, err := e.adopt(m)
	if err != nil {
		return
	}
	select {
	case e.backlog <- c:
	default:
		e.cfg.Log.Warn("shm: refused a client: too many wait to be accepted", "peer", c.peer, "waiting", connsMax)
		c.Close()
	}
}

// adopt returns the conn of a successful handshake, and starts its goroutines.
func (e *endpoint) adopt(m *handshake) (*conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		m.sock.Close()
		m.drop()
		return nil, transport.ErrClosed
	}
	c := newConn(e, m)
	e.conns[c] = struct{}{}
	e.tasks.Go(func() { c.readMessages(&m.box) })
	e.tasks.Go(func() {
		if err := watchEvents(c.ownEvent, c.signaled); err != nil && !errors.Is(err, os.ErrClosed) {
			c.protocolError(err)
		}
	})
	return c, nil
}

// endAll ends all conns. The endpoint stays open.
func (e *endpoint) endAll(reason error) {
	e.mu.Lock()
	conns := slices.Collect(maps.Keys(e.conns))
	e.mu.Unlock()
	for _, c := range conns {
		c.end(reason)
	}
}

func (e *endpoint) remove(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}
