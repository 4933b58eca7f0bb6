package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/internal/localpipe"
)

// A conn is one side of a connection. The other side ends when the notice of the end has
// arrived there.
type conn struct {
	network  *Network
	owner    *endpoint
	peer     *conn
	peerAddr string
	stream   string           // name of the random streams of its pipes
	notices  orderedFlow      // to the peer
	incoming *queue[*pipe]    // opened by the peer and not yet accepted
	pipes    map[*pipe]uint64 // opened by this side, with their numbers
	opened   uint64
	cut      bool          // CutAfter has broken it; no byte of its pipes arrives
	stalls   bool          // it ends stallTime after its next bytes
	done     chan struct{} // closed after err is set
	err      error
}

// newConn returns the side of owner. The caller sets its peer.
func newConn(owner, peer *endpoint, stream string) *conn {
	n := owner.network
	c := &conn{
		network:  n,
		owner:    owner,
		peerAddr: peer.addr,
		stream:   stream,
		notices:  orderedFlow{link: n.link(owner.host, peer.host), rng: n.rng("notices %s", stream)},
		incoming: newQueue[*pipe](),
		pipes:    make(map[*pipe]uint64),
		done:     make(chan struct{}),
	}
	owner.conns[c] = owner.made
	owner.made++
	return c
}

func (c *conn) Peer() string          { return c.peer.owner.identity }
func (c *conn) RemoteAddr() string    { return c.peerAddr }
func (c *conn) Done() <-chan struct{} { return c.done }

// OpenPipe implements [transport.Conn]. It does not block.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	return localpipe.NewSender(newPipe(c)), nil
}

// AcceptPipe implements [transport.Conn].
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
			return localpipe.NewReceiver(p), nil
		}
		if err := c.incoming.wait(ctx, c.done); err != nil {
			return nil, err
		}
	}
}

// acceptPipe returns the next pipe, or nil if there is none. It locks Network.mu.
func (c *conn) acceptPipe() (*pipe, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	p, _ := c.incoming.pop()
	return p, nil
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
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.closeWith(transport.ErrPeerClosed)
	return nil
}

// closeWith ends this side with ErrClosed, and the other side with the error peer when
// the notice arrives.
func (c *conn) closeWith(peer error) {
	if c.err != nil {
		return
	}
	c.end(transport.ErrClosed)
	c.notices.send(0, func() { c.peer.end(peer) })
}

// stallTime is the time from the bytes that nobody acknowledges to the end of a side that gets no notice.
const stallTime = time.Second

// endAfter ends this side of a conn that was cut at a time: after a wait or, if that is negative, after stallTime with bytes that were not read.
func (c *conn) endAfter(at time.Time, wait time.Duration) {
	if wait < 0 {
		c.stalls = true
		for p := range c.pipes {
			if p.unread > 0 {
				wait, c.stalls = stallTime, false
			}
		}
	}
	if !c.stalls {
		c.network.clock.at(at.Add(wait), func() { c.end(transport.ErrPeerGone) })
	}
}

// end ends this side with the given reason, unless it has ended.
func (c *conn) end(reason error) {
	if c.err != nil {
		return
	}
	c.err = fmt.Errorf("sim: connection to %s: %w", c.peerAddr, reason)
	for _, p := range byNumber(c.pipes) {
		p.endWriting(c.err)
	}
	for _, p := range byNumber(c.peer.pipes) {
		p.endReading(c.err)
	}
	delete(c.owner.conns, c)
	close(c.done)
}
