package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// lobbyTimeout is how long a connection for bulk waits for its link.
const lobbyTimeout = 30 * time.Second

// A lobby is where connections for bulk wait for the links that they belong
// to: one for each node.
type lobby struct {
	mu      sync.Mutex
	guests  map[membership.NodeID]*guest
	changed chan struct{} // closed when someone comes
	closed  bool
}

type guest struct {
	conn  transport.Conn
	timer *time.Timer
}

func newLobby() *lobby {
	return &lobby{guests: make(map[membership.NodeID]*guest), changed: make(chan struct{})}
}

// put lets a connection wait. A node that connects again has given up the
// connection before.
func (b *lobby) put(id membership.NodeID, c transport.Conn) {
	g := &guest{conn: c}
	b.mu.Lock()
	old := b.remove(id)
	refused := b.closed
	if !refused {
		b.guests[id] = g
		g.timer = time.AfterFunc(lobbyTimeout, func() { b.forget(id, g) })
		close(b.changed)
		b.changed = make(chan struct{})
	}
	b.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
	if refused {
		c.Close()
	}
}

// take returns the connection of a node. It waits for one until ctx ends.
func (b *lobby) take(ctx context.Context, id membership.NodeID) (transport.Conn, error) {
	for {
		b.mu.Lock()
		g, changed, closed := b.remove(id), b.changed, b.closed
		b.mu.Unlock()
		if g != nil {
			if g.conn.Err() == nil {
				return g.conn, nil
			}
			g.conn.Close()
		}
		if closed {
			return nil, errors.New("mesh: closed")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// remove takes the entry of a node out. It is called with the lock held.
func (b *lobby) remove(id membership.NodeID) *guest {
	g := b.guests[id]
	if g != nil {
		g.timer.Stop()
		delete(b.guests, id)
	}
	return g
}

// forget closes the connection of a guest whom nobody has asked for.
func (b *lobby) forget(id membership.NodeID, g *guest) {
	b.mu.Lock()
	mine := b.guests[id] == g
	if mine {
		delete(b.guests, id)
	}
	b.mu.Unlock()
	if mine {
		g.conn.Close()
	}
}

// close sends everyone away who waits, and who is still to come.
func (b *lobby) close() {
	b.mu.Lock()
	guests := b.guests
	b.guests, b.closed = nil, true
	b.mu.Unlock()
	for _, g := range guests {
		g.timer.Stop()
		g.conn.Close()
	}
}
