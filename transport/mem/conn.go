package mem

import (
	"context"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/transport"
)

// A link is a connection: what its two conns share. They end together.
type link struct {
	ends [2]conn

	mu    sync.Mutex
	ended bool
	pipes map[*pipe]struct{}
}

// A conn is one side of a link.
type conn struct {
	link     *link
	side     int // its index in link.ends
	owner    *endpoint
	peer     string
	incoming chan *pipe    // opened by the peer and not yet accepted
	remote   remote        // what the peer may write to
	done     chan struct{} // closed after err is set and all pipes have ended
	err      error
}

// newLink returns a connection from a, which is side 0, to b.
func newLink(a, b *endpoint) *link {
	l := &link{pipes: make(map[*pipe]struct{})}
	for side, owner := range []*endpoint{a, b} {
		l.ends[side] = conn{
			link:     l,
			side:     side,
			owner:    owner,
			incoming: make(chan *pipe, backlogMax),
			remote:   remote{grants: make(map[uint64]*grant)},
			done:     make(chan struct{}),
		}
	}
	l.ends[0].peer, l.ends[1].peer = b.name, a.name
	return l
}

func (c *conn) Peer() string          { return c.peer }
func (c *conn) RemoteAddr() string    { return c.peer }
func (c *conn) Done() <-chan struct{} { return c.done }

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameProcess, Class: transport.ClassMemory, MemorySharer: c, RemoteMemory: c}
}

// OpenPipe implements transport.Conn. It blocks only while very many pipes
// wait for the peer to accept them.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := newPipe(c)
	if !c.link.add(p) {
		<-c.done
		return nil, c.err
	}
	select {
	case c.other().incoming <- p:
		return (*sender)(p), nil
	case <-ctx.Done():
		c.link.forget(p)
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
}

// AcceptPipe implements transport.Conn.
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		if err := c.Err(); err != nil {
			return nil, err
		}
		select {
		case p := <-c.incoming:
			return (*receiver)(p), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.done:
		}
	}
}

// Err implements transport.Conn.
func (c *conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close implements transport.Conn.
func (c *conn) Close() error {
	c.link.end(c.side, transport.ErrClosed, transport.ErrPeerClosed)
	return nil
}

func (c *conn) other() *conn { return &c.link.ends[1-c.side] }

// end ends both conns: that of side with the error here, the other one with
// there. Only the first call decides; all of them return after it is done.
func (l *link) end(side int, here, there error) {
	c := &l.ends[side]
	if c.owner.killed.Load() {
		there = transport.ErrPeerGone
	}
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		<-c.done
		return
	}
	l.ended = true
	pipes := l.pipes
	l.pipes = nil
	l.mu.Unlock()

	c.err = fmt.Errorf("mem: conn to %q: %w", c.peer, here)
	c.other().err = fmt.Errorf("mem: conn to %q: %w", c.other().peer, there)
	for p := range pipes {
		p.end(p.from.err, p.from.other().err)
	}
	for i := range l.ends {
		l.ends[i].remote.revokeAll()
		close(l.ends[i].done)
		l.ends[i].owner.forget(&l.ends[i])
	}
}

// add makes p end with the link. It reports false if the link has ended.
func (l *link) add(p *pipe) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.pipes[p] = struct{}{}
	return true
}

func (l *link) forget(p *pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pipes, p)
}
