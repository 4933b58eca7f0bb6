package mesh

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/transport"
)

// unusedTimeout is the longest time that an accepted connection waits for its peer to begin a link.
const unusedTimeout = 30 * time.Second

// A connSet holds the latest accepted connection of each key until a link uses it. A new
// connection of a peer replaces its earlier one, which the set closes. The set also closes a
// connection after unusedTimeout.
type connSet[K comparable] struct {
	mu      sync.Mutex
	conns   map[K]transport.Conn
	changed wake.Signal // when a connection is added
	closed  bool
}

func newConnSet[K comparable]() *connSet[K] {
	return &connSet[K]{conns: make(map[K]transport.Conn), changed: wake.NewSignal()}
}

// put adds a connection. After close it closes c.
func (s *connSet[K]) put(key K, c transport.Conn) {
	s.mu.Lock()
	unused := c
	if !s.closed {
		unused = s.conns[key]
		s.conns[key] = c
		s.changed.Send()
		time.AfterFunc(unusedTimeout, func() {
			if s.remove(key, c) {
				c.Close()
			}
		})
	}
	s.mu.Unlock()
	if unused != nil {
		unused.Close()
	}
}

// take removes and returns the connection of a key. It blocks until there is one, ctx ends, or
// the set is closed.
func (s *connSet[K]) take(ctx context.Context, key K) (transport.Conn, error) {
	for {
		s.mu.Lock()
		c, changed, closed := s.conns[key], s.changed.Next(), s.closed
		s.mu.Unlock()
		switch {
		case closed:
			return nil, errors.New("mesh: closed")
		case c == nil:
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		case s.remove(key, c):
			if c.Err() == nil {
				return c, nil
			}
			c.Close()
		}
	}
}

// remove removes a connection, and reports whether it did: another one may have replaced it, or
// a link may have taken it.
func (s *connSet[K]) remove(key K, c transport.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.conns[key] == c
	if current {
		delete(s.conns, key)
	}
	return current
}

// close closes all connections and refuses further ones.
func (s *connSet[K]) close() {
	s.mu.Lock()
	conns := s.conns
	s.conns, s.closed = nil, true
	s.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}
