package mem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/transport"
)

// maxBacklog is the number of conns that wait for Accept, and of pipes that wait for
// AcceptPipe, before Dial and OpenPipe block.
const maxBacklog = 64

// An endpoint is the Transport of one name.
type endpoint struct {
	network *Network
	name    string
	areas   *areas        // readable by its peers
	backlog chan *conn    // dialed and not yet accepted
	closed  chan struct{} // closed by Close or Kill
	left    chan struct{} // closed by Close
	leave   sync.Once
	killed  atomic.Bool // from now on it sends nothing to its peers

	mu    sync.Mutex
	ended bool
	conns map[*conn]struct{}
}

func (e *endpoint) Name() string { return "mem" }
func (e *endpoint) Addr() string { return e.name }

// Capabilities implements [transport.Capable].
func (e *endpoint) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameProcess, Class: transport.ClassMemory, HostMemory: e}
}

// Dial implements [transport.Transport].
func (e *endpoint) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := e.dial(ctx, addr, peer)
	if err != nil {
		return nil, fmt.Errorf("mem: dial %q: %w", addr, err)
	}
	return c, nil
}

func (e *endpoint) dial(ctx context.Context, addr, peer string) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	target := e.network.lookup(addr)
	if e.isClosed() {
		return nil, transport.ErrClosed
	}
	if target == nil {
		return nil, errors.New("no transport listens at this name")
	}
	if peer != "" && peer != addr {
		return nil, fmt.Errorf("%w: it is not %q", transport.ErrIdentity, peer)
	}
	pair := newConnPair(e, target)
	dialed, accepted := &pair.conns[0], &pair.conns[1]
	if !e.add(dialed) || !target.add(accepted) {
		pair.end(0, transport.ErrClosed, transport.ErrPeerClosed)
		return nil, fmt.Errorf("%w while dialing", transport.ErrClosed)
	}
	select {
	case target.backlog <- accepted:
		return dialed, nil
	case <-ctx.Done():
		pair.end(0, transport.ErrClosed, transport.ErrPeerClosed)
		return nil, ctx.Err()
	case <-dialed.done:
		return nil, dialed.err
	}
}

// Accept implements [transport.Transport].
func (e *endpoint) Accept(ctx context.Context) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		if e.isClosed() {
			return nil, fmt.Errorf("mem: accept at %q: %w", e.name, transport.ErrClosed)
		}
		select {
		case c := <-e.backlog:
			return c, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-e.closed:
		}
	}
}

// Close implements [transport.Transport].
func (e *endpoint) Close() error {
	e.end(transport.ErrPeerClosed)
	e.leave.Do(func() {
		close(e.left)
		e.network.forgetKilled(e)
	})
	return nil
}

// end closes the endpoint and all its conns, and gives their peers the error peer.
func (e *endpoint) end(peer error) {
	e.mu.Lock()
	if !e.ended {
		e.ended = true
		close(e.closed)
	}
	conns := e.conns
	e.conns = nil
	e.mu.Unlock()

	e.network.forget(e)
	for c := range conns {
		c.pair.end(c.side, transport.ErrClosed, peer)
	}
}

func (e *endpoint) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// add makes e the owner of c. It returns false if e is closed.
func (e *endpoint) add(c *conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return false
	}
	e.conns[c] = struct{}{}
	return true
}

func (e *endpoint) forget(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c)
}
