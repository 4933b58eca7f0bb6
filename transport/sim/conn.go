package sim

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/transport"
)

// A conn is one side of a connection. The other side ends when a notice of it
// has arrived.
type conn struct {
	network  *Network
	owner    *endpoint
	peer     *conn
	peerAddr string
	stream   string           // names the random numbers of its pipes
	notices  lane             // to the peer
	incoming *queue[*pipe]    // opened by the peer and not yet accepted
	pipes    map[*pipe]uint64 // opened on this side, numbered
	opened   uint64
	done     chan struct{} // closed when err is set
	err      error
}

// newConn returns the side of owner. The caller sets peer.
func newConn(owner, peer *endpoint, stream string) *conn {
	n := owner.network
	c := &conn{
		network:  n,
		owner:    owner,
		peerAddr: peer.addr,
		stream:   stream,
		notices:  lane{link: n.link(owner.host, peer.host), chance: n.chance("notices %s", stream)},
		incoming: newQueue[*pipe](),
		pipes:    make(map[*pipe]uint64),
		done:     make(chan struct{}),
	}
	owner.conns[c] = owner.made
	owner.made++
	return c
}

func (c *conn) Peer() string          { return c.peerAddr }
func (c *conn) RemoteAddr() string    { return c.peerAddr }
func (c *conn) Done() <-chan struct{} { return c.done }

// OpenPipe implements transport.Conn. It does not block.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	return (*sender)(newPipe(c)), nil
}

// AcceptPipe implements transport.Conn.
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		p, err := c.acceptPipe()
		if err != nil {
			return nil, err
		}
		if p != nil {
			return (*receiver)(p), nil
		}
		if err := c.incoming.wait(ctx, c.done); err != nil {
			return nil, err
		}
	}
}

// acceptPipe takes the next pipe, if there is one. It takes Network.mu itself.
func (c *conn) acceptPipe() (*pipe, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	p, _ := c.incoming.pop()
	return p, nil
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
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.hangUp(transport.ErrPeerClosed)
	return nil
}

// hangUp ends this side, and the other one when it hears of it.
func (c *conn) hangUp(there error) {
	if c.err != nil {
		return
	}
	c.end(transport.ErrClosed)
	c.notices.send(0, func() { c.peer.end(there) })
}

// end ends this side for the given reason, unless it has ended.
func (c *conn) end(reason error) {
	if c.err != nil {
		return
	}
	c.err = fmt.Errorf("sim: conn to %s: %w", c.peerAddr, reason)
	for _, p := range byNumber(c.pipes) {
		p.endWriting(c.err)
	}
	for _, p := range byNumber(c.peer.pipes) {
		p.endReading(c.err)
	}
	delete(c.owner.conns, c)
	close(c.done)
}
