package mem

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/transport"
)

// remote is the memory that one side of a conn has granted to the other.
type remote struct {
	mu     sync.Mutex
	last   uint64
	grants map[uint64]*grant // by key; nil when the conn has ended
}

// A grant is valid as long as it is in the map of its remote.
type grant struct {
	of     *remote
	key    transport.RemoteKey
	memory []byte
	// writing is held by each write to memory, so that Revoke can wait for it.
	writing sync.Mutex
}

// A registration is memory that needs nothing from the system.
type registration struct {
	of     *remote
	memory []byte
	mu     sync.Mutex
	grants []*grant
}

// Register implements [transport.RemoteMemory].
func (c *conn) Register(memory []byte) (transport.Registration, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	return &registration{of: &c.remote, memory: memory}, nil
}

// Grant implements [transport.Registration].
func (r *registration) Grant(offset, n int) (transport.Grant, error) {
	if offset < 0 || n < 0 || n > len(r.memory) || offset > len(r.memory)-n {
		return nil, fmt.Errorf("mem: grant of bytes %d to %d of a registration of %d", offset, offset+n, len(r.memory))
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if r.of.grants == nil {
		return nil, transport.ErrClosed
	}
	r.of.last++
	g := &grant{of: r.of, memory: r.memory[offset : offset+n : offset+n]}
	// Addresses are offsets here, since writers reach the memory by the key alone.
	g.key = transport.RemoteKey{Addr: uint64(offset), Key: r.of.last, Len: uint64(n)}
	r.of.grants[g.key.Key] = g
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants = append(r.grants, g)
	return g, nil
}

// Deregister implements [transport.Registration].
func (r *registration) Deregister() {
	r.mu.Lock()
	grants := r.grants
	r.grants = nil
	r.mu.Unlock()
	for _, g := range grants {
		g.Revoke()
	}
}

// Key implements [transport.Grant].
func (g *grant) Key() transport.RemoteKey { return g.key }

// Revoke implements [transport.Grant]. It waits for a write of at most viewBytesMax.
func (g *grant) Revoke() {
	g.of.mu.Lock()
	delete(g.of.grants, g.key.Key)
	g.of.mu.Unlock()
	g.writing.Lock()
	defer g.writing.Unlock()
	g.memory = nil
}

// WriteRemote implements [transport.RemoteMemory].
func (c *conn) WriteRemote(ctx context.Context, key transport.RemoteKey, offset int, p []byte) error {
	if err := errors.Join(ctx.Err(), c.Err()); err != nil {
		return err
	}
	if c.owner.killed.Load() {
		return transport.ErrClosed
	}
	peer := &c.other().remote
	peer.mu.Lock()
	g := peer.grants[key.Key]
	peer.mu.Unlock()
	switch {
	case g == nil || g.key != key:
		return fmt.Errorf("mem: %w: key %d", transport.ErrRemoteAccess, key.Key)
	case offset < 0 || offset > int(key.Len)-len(p):
		return fmt.Errorf("mem: %w: bytes %d to %d of a grant of %d", transport.ErrRemoteAccess, offset, offset+len(p), key.Len)
	}
	for len(p) > 0 {
		n := min(len(p), viewBytesMax)
		if err := g.write(offset, p[:n]); err != nil {
			return err
		}
		if err := errors.Join(ctx.Err(), c.Err()); err != nil {
			return err
		}
		p, offset = p[n:], offset+n
	}
	return nil
}

// write writes one piece, unless the grant was revoked.
func (g *grant) write(offset int, p []byte) error {
	g.writing.Lock()
	defer g.writing.Unlock()
	if g.memory == nil {
		return fmt.Errorf("mem: %w: key %d", transport.ErrRemoteAccess, g.key.Key)
	}
	copy(g.memory[offset:], p)
	return nil
}

// revokeAll ends all grants when the conn has ended.
func (r *remote) revokeAll() {
	r.mu.Lock()
	grants := r.grants
	r.grants = nil
	r.mu.Unlock()
	for _, g := range grants {
		g.Revoke()
	}
}
