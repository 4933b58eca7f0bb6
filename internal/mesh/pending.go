package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// pendingTimeout is how long a bulk connection waits for its link.
const pendingTimeout = 30 * time.Second

// pendingConns are accepted bulk connections whose links are not made yet, at most one
// for each node.
type pendingConns struct {
	mu      sync.Mutex
	conns   map[membership.NodeID]transport.Conn
	changed chan struct{} // closed when a connection is added
	closed  bool
}

func newPendingConns() *pendingConns {
	return &pendingConns{conns: make(map[membership.NodeID]transport.Conn), changed: make(chan struct{})}
}

// put adds the connection of a node. It closes an earlier connection of the node, which
// has given that up, and c after close.
func (p *pendingConns) put(id membership.NodeID, c transport.Conn) {
	p.mu.Lock()
	useless := c
	if !p.closed {
		useless = p.conns[id]
		p.conns[id] = c
		close(p.changed)
		p.changed = make(chan struct{})
		time.AfterFunc(pendingTimeout, func() {
			if p.remove(id, c) {
				c.Close()
			}
		})
	}
	p.mu.Unlock()
	if useless != nil {
		useless.Close()
	}
}

// take removes and returns the connection of a node. It waits for the connection until ctx ends.
func (p *pendingConns) take(ctx context.Context, id membership.NodeID) (transport.Conn, error) {
	for {
		p.mu.Lock()
		c, changed, closed := p.conns[id], p.changed, p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return nil, errors.New("mesh: closed")
		case c == nil:
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case p.remove(id, c):
			if c.Err() == nil {
				return c, nil
			}
			c.Close()
		}
	}
}

// remove removes a connection unless another one has replaced it.
func (p *pendingConns) remove(id membership.NodeID, c transport.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	current := p.conns[id] == c
	if current {
		delete(p.conns, id)
	}
	return current
}

// close closes all connections and refuses further ones.
func (p *pendingConns) close() {
	p.mu.Lock()
	conns := p.conns
	p.conns, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}
