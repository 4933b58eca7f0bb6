package mem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/transport"
)

// remoteMemory holds the grants of one side of a conn to the other.
type remoteMemory struct {
	lastKey *atomic.Uint64 // of the network: no two grants have the same key, so that a key of another conn is refused

	mu     sync.Mutex
	grants map[uint64]*grant // by key; nil after the end of the conn
}

// A registration is memory that can be granted in parts.
type registration struct {
	of     *remoteMemory
	memory []byte // nil after Deregister; guarded by of.mu
}

// A grant is valid while its key is in the map of its remoteMemory.
type grant struct {
	registration *registration
	key          transport.RemoteKey
	memory       []byte     // nil after Revoke
	mu           sync.Mutex // held during each copy into memory
}

// Suits implements [transport.RemoteMemory]. A pipe copies a payload once, like a remote write.
func (c *conn) Suits([]byte) bool { return false }

// Register implements [transport.RemoteMemory].
func (c *conn) Register(memory []byte) (transport.Registration, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	return &registration{of: &c.remote, memory: memory}, nil
}

// Grant implements [transport.Registration].
func (r *registration) Grant(offset, n int) (transport.Grant, error) {
	m := r.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.grants == nil {
		return nil, fmt.Errorf("mem: grant remote memory: %w", transport.ErrClosed)
	}
	if offset < 0 || n < 0 || n > len(r.memory) || offset > len(r.memory)-n {
		return nil, fmt.Errorf("mem: grant of %d bytes at %d: the registration has %d bytes", n, offset, len(r.memory))
	}
	g := &grant{
		registration: r,
		// The writer finds the memory by the key, so an offset serves as the address.
		key:    transport.RemoteKey{Addr: uint64(offset), Key: m.lastKey.Add(1), Len: uint64(n)},
		memory: r.memory[offset : offset+n : offset+n],
	}
	m.grants[g.key.Key] = g
	return g, nil
}

// Deregister implements [transport.Registration].
func (r *registration) Deregister() {
	m := r.of
	m.mu.Lock()
	r.memory = nil
	var revoked []*grant
	for _, g := range m.grants {
		if g.registration == r {
			revoked = append(revoked, g)
		}
	}
	m.mu.Unlock()
	for _, g := range revoked {
		g.Revoke()
	}
}

// Key implements [transport.Grant].
func (g *grant) Key() transport.RemoteKey { return g.key }

// Recall implements [transport.Grant]. Writes of the peer with a revoked key do not end the conn, so Revoke is enough.
func (g *grant) Recall(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.Revoke()
	return nil
}

// Revoke implements [transport.Grant].
func (g *grant) Revoke() {
	m := g.registration.of
	m.mu.Lock()
	delete(m.grants, g.key.Key)
	m.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
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
		return fmt.Errorf("mem: %w: key %d is not valid", transport.ErrRemoteAccess, key.Key)
	case offset < 0 || offset > int(key.Len)-len(p):
		return fmt.Errorf("mem: %w: %d bytes at %d of a grant of %d", transport.ErrRemoteAccess, len(p), offset, key.Len)
	}
	for len(p) > 0 {
		n := min(len(p), maxView)
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

// write copies one piece, unless the grant is revoked.
func (g *grant) write(offset int, p []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.memory == nil {
		return fmt.Errorf("mem: %w: key %d is revoked", transport.ErrRemoteAccess, g.key.Key)
	}
	copy(g.memory[offset:], p)
	return nil
}

// revokeAll revokes all grants at the end of the conn.
func (r *remoteMemory) revokeAll() {
	r.mu.Lock()
	grants := r.grants
	r.grants = nil
	r.mu.Unlock()
	for _, g := range grants {
		g.Revoke()
	}
}
