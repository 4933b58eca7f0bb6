package shm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
	// connsMax is how many conns wait for Accept before more are refused.
	connsMax = 1024
	// guestsMax is how many clients may be about to say who they are.
	guestsMax = 256
	// helloTimeout is how long they may take.
	helloTimeout = 5 * time.Second
	// acceptPause is how long to wait for a file descriptor to become free.
	acceptPause = 10 * time.Millisecond
)

// An endpoint is the Transport of one node.
type endpoint struct {
	cfg        Config
	ringBytes  int           // of the pipes that it opens
	roomyBytes int           // of those with more room
	spinMax    time.Duration // how long its pipes spin
	spinners   spinners
	reserve    func(b []byte) error // reserveMemory, unless a test replaces it
	ln         *net.UnixListener
	areas      *areas
	keeper     keeper
	backlog    chan *conn // accepted and not yet handed out
	guests     chan struct{}
	life       context.Context // ends with Close
	cancel     context.CancelCauseFunc
	tasks      sync.WaitGroup // goroutines, and dials under way
	shut       sync.Once

	mu    sync.Mutex
	ended bool
	conns map[*conn]struct{}
}

// socketName is the name in the abstract namespace at which a node is met. A
// name has room for less than two identities, so it is a digest of them.
func socketName(cluster, node string) string {
	sum := sha256.Sum256(hello{cluster: cluster, to: node}.append(nil))
	return "@nexar-" + hex.EncodeToString(sum[:16])
}

func newEndpoint(cfg Config) (transport.Transport, error) {
	e := &endpoint{
		cfg:        cfg,
		ringBytes:  ringBytes,
		roomyBytes: roomyBytes,
		spinMax:    spinMax,
		reserve:    reserveMemory,
		spinners:   spinners{most: int32(runtime.GOMAXPROCS(0))},
		backlog:    make(chan *conn, connsMax),
		guests:     make(chan struct{}, guestsMax),
		conns:      make(map[*conn]struct{}),
	}
	e.keeper = keeper{look: e.giveBack, every: restTime}
	name := socketName(cfg.Cluster, cfg.Node)
	ln, err := net.ListenUnix(network, &net.UnixAddr{Net: network, Name: name})
	if err != nil {
		if errors.Is(err, unix.EADDRINUSE) {
			err = whoListens(name)
		}
		return nil, fmt.Errorf("shm: listen as %q: %w", cfg.Node, err)
	}
	e.ln = ln
	if e.areas, err = newAreas(cfg.Areas, cfg.AreaSize); err != nil {
		ln.Close()
		return nil, fmt.Errorf("shm: make an area: %w", err)
	}
	e.life, e.cancel = context.WithCancelCause(context.Background())
	e.tasks.Go(e.acceptLoop)
	return e, nil
}

// whoListens is the error for a name that is taken.
func whoListens(name string) error {
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
	return transport.Capabilities{Locality: transport.SameHost, Class: transport.ClassMemory}
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
		e.keeper.end()
		e.ln.Close()
		for c := range conns {
			c.end(transport.ErrClosed)
		}
		e.tasks.Wait()
		e.areas.close()
	})
	return nil
}

// begin counts a task that Close waits for. It reports false if Close has been
// called.
func (e *endpoint) begin() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.tasks.Add(1)
	return true
}

// giveBack gives the memory of rings back that are not in use, and reports whether
// there is more.
func (e *endpoint) giveBack() (more bool) {
	if !e.begin() {
		return false
	}
	defer e.tasks.Done()
	e.mu.Lock()
	conns := slices.Collect(maps.Keys(e.conns))
	e.mu.Unlock()
	for _, c := range conns {
		for _, end := range c.allEnds() {
			if end.rest != nil && end.rest() {
				more = true
			}
		}
	}
	return more
}

// acceptLoop lets clients in, each of which says who it is on its own time.
func (e *endpoint) acceptLoop() {
	for {
		sock, err := e.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			e.cfg.Log.Warn("shm: cannot accept a client", "err", err)
			select {
			case <-time.After(acceptPause):
			case <-e.life.Done():
			}
			continue
		}
		select {
		case e.guests <- struct{}{}:
			e.tasks.Go(func() {
				e.receive(sock)
				<-e.guests
			})
		default:
			postNow(sock, refuse(errors.New("too many clients have not said who they are")).append(nil))
			sock.Close()
		}
	}
}

// receive lets a client say who it is, and tells it if it is refused.
func (e *endpoint) receive(sock *net.UnixConn) {
	m, err := e.meet(e.life, sock, func(m *meeting) error { return m.accept(e) })
	if err != nil {
		e.cfg.Log.Warn("shm: refused a client", "err", err)
		postNow(sock, refuse(err).append(nil))
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
		e.cfg.Log.Warn("shm: refused a client, because too many wait to be accepted", "peer", c.peer, "waiting", connsMax)
		c.Close()
	}
}

// adopt makes a conn of a meeting that went well.
func (e *endpoint) adopt(m *meeting) (*conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		m.sock.Close()
		m.drop()
		return nil, transport.ErrClosed
	}
	c := newConn(e, m)
	e.conns[c] = struct{}{}
	e.tasks.Go(func() { c.readLetters(&m.box) })
	e.tasks.Go(func() {
		if err := hear(c.ears, c.rung); err != nil && !errors.Is(err, os.ErrClosed) {
			c.broken(err)
		}
	})
	return c, nil
}

// endAll ends all conns for a reason. The endpoint stays open.
func (e *endpoint) endAll(reason error) {
	e.mu.Lock()
	conns := slices.Collect(maps.Keys(e.conns))
	e.mu.Unlock()
	for _, c := range conns {
		c.end(reason)
	}
}

func (e *endpoint) forget(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}
