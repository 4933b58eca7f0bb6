package mem

import (
	"context"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/internal/localpipe"
)

// A connPair is a connection: both conns, which end together, and their pipes.
type connPair struct {
	conns [2]conn

	mu    sync.Mutex
	ended bool
	pipes map[*pipe]struct{}
}

// A conn is one side of a connection.
type conn struct {
	pair     *connPair
	side     int // its index in pair.conns
	owner    *endpoint
	peer     string
	incoming chan *pipe    // opened by the peer and not yet accepted
	remote   remoteMemory  // memory of the owner that the peer may write to
	done     chan struct{} // closed after err is set and all pipes have ended
	err      error
}

// newConnPair returns a connection from a to b. Side 0 is that of a.
func newConnPair(a, b *endpoint) *connPair {
	pair := &connPair{pipes: make(map[*pipe]struct{})}
	for side, owner := range []*endpoint{a, b} {
		pair.conns[side] = conn{
			pair:     pair,
			side:     side,
			owner:    owner,
			incoming: make(chan *pipe, maxBacklog),
			remote:   remoteMemory{lastKey: &owner.network.lastKey, grants: make(map[uint64]*grant)},
			done:     make(chan struct{}),
		}
	}
	pair.conns[0].peer, pair.conns[1].peer = b.name, a.name
	return pair
}

func (c *conn) Peer() string          { return c.peer }
func (c *conn) RemoteAddr() string    { return c.peer }
func (c *conn) Done() <-chan struct{} { return c.done }

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameProcess, Class: transport.ClassMemory, MemorySharer: c, RemoteMemory: c, Lasting: true}
}

// OpenPipe implements [transport.Conn]. It blocks while maxBacklog pipes wait for
// AcceptPipe of the peer.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := newPipe(c)
	if !c.pair.add(p) {
		<-c.done
		return nil, c.err
	}
	select {
	case c.other().incoming <- p:
		return localpipe.NewSender(p), nil
	case <-ctx.Done():
		c.pair.forget(p)
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
}

// AcceptPipe implements [transport.Conn].
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	select {
	case p := <-c.incoming:
		return localpipe.NewReceiver(p), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
}

// Err implements [transport.Conn].
func (c *conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close implements [transport.Conn].
func (c *conn) Close() error {
	c.pair.end(c.side, transport.ErrClosed, transport.ErrPeerClosed)
	return nil
}

func (c *conn) other() *conn { return &c.pair.conns[1-c.side] }

// end ends both conns: that of side with the error own, and the other with peer. The
// first call decides. Every call returns after the end.
func (pair *connPair) end(side int, own, peer error) {
	c := &pair.conns[side]
	if c.owner.killed.Load() {
		peer = transport.ErrPeerGone
	}
	pair.mu.Lock()
	if pair.ended {
		pair.mu.Unlock()
		<-c.done
		return
	}
	pair.ended = true
	pipes := pair.pipes
	pair.pipes = nil
	pair.mu.Unlock()

	c.err = fmt.Errorf("mem: connection to %q: %w", c.peer, own)
	c.other().err = fmt.Errorf("mem: connection to %q: %w", c.other().peer, peer)
	for p := range pipes {
		p.end(p.from.err, p.from.other().err)
	}
	for i := range pair.conns {
		pair.conns[i].remote.revokeAll()
		close(pair.conns[i].done)
		pair.conns[i].owner.forget(&pair.conns[i])
	}
}

// add makes p end with the connection. It returns false if that has ended.
func (pair *connPair) add(p *pipe) bool {
	pair.mu.Lock()
	defer pair.mu.Unlock()
	if pair.ended {
		return false
	}
	pair.pipes[p] = struct{}{}
	return true
}

func (pair *connPair) forget(p *pipe) {
	pair.mu.Lock()
	defer pair.mu.Unlock()
	delete(pair.pipes, p)
}
