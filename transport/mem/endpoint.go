package mem

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/transport"
)

// backlogMax is the number of conns that wait for Accept, and of pipes that
// wait for AcceptPipe, before Dial and OpenPipe begin to block.
const backlogMax = 64

// An endpoint is the Transport of one name.
type endpoint struct {
	network *Network
	name    string
	areas   *areas        // which its peers read
	backlog chan *conn    // dialed and not yet accepted
	closed  chan struct{} // closed by the first end
	left    chan struct{} // closed by the first Close
	leave   sync.Once
	killed  atomic.Bool // nothing that it does after that reaches its peers

	mu    sync.Mutex
	ended bool
	conns map[*conn]struct{}
}

func (e *endpoint) Name() string { return "mem" }
func (e *endpoint) Addr() string { return e.name }

// Capabilities implements [transport.Capable].
func (e *endpoint) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameProcess, Class: transport.ClassMemory}
}

// Dial implements transport.Transport.
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
		return nil, fmt.Errorf("nobody listens there")
	}
	if peer != "" && peer != addr {
		return nil, fmt.Errorf("%w: asked for %q", transport.ErrIdentity, peer)
	}
	l := newLink(e, target)
	here, there := &l.ends[0], &l.ends[1]
	if !e.add(here) || !target.add(there) {
		l.end(0, transport.ErrClosed, transport.ErrPeerClosed)
		return nil, fmt.Errorf("%w while dialing", transport.ErrClosed)
	}
	select {
	case target.backlog <- there:
		return here, nil
	case <-ctx.Done():
		l.end(0, transport.ErrClosed, transport.ErrPeerClosed)
		return nil, ctx.Err()
	case <-here.done:
		return nil, here.err
	}
}

// Accept implements transport.Transport.
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

// Close implements transport.Transport.
func (e *endpoint) Close() error {
	e.end(transport.ErrPeerClosed)
	e.leave.Do(func() { close(e.left) })
	return nil
}

// end closes the endpoint and all its conns, whose peers are told there.
func (e *endpoint) end(there error) {
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
		c.link.end(c.side, transport.ErrClosed, there)
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

// add makes e the owner of c. It reports false if e is closed.
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
