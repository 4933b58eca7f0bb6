package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/nexar-go/nexar/transport"
)

// An endpoint is the Transport at one port of a host.
type endpoint struct {
	network  *Network
	host     *Host
	port     int
	addr     string
	identity string
	backlog  *queue[*conn] // dialed and not yet accepted
	done     chan struct{} // closed when closed becomes true
	closed   bool
	conns    map[*conn]uint64 // numbered in the order of their creation
	made     uint64           // number of conns created
}

func (e *endpoint) Name() string { return "sim" }
func (e *endpoint) Addr() string { return e.addr }

// Accept implements [transport.Transport].
func (e *endpoint) Accept(ctx context.Context) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		c, err := e.accept()
		if err != nil {
			return nil, err
		}
		if c != nil {
			return c, nil
		}
		if err := e.backlog.wait(ctx, e.done); err != nil {
			return nil, err
		}
	}
}

// accept returns the next conn, or nil if there is none. It locks Network.mu.
func (e *endpoint) accept() (*conn, error) {
	e.network.mu.Lock()
	defer e.network.mu.Unlock()
	for {
		if e.closed {
			return nil, fmt.Errorf("sim: accept at %s: %w", e.addr, transport.ErrClosed)
		}
		c, ok := e.backlog.pop()
		if !ok {
			return nil, nil
		}
		if c.err == nil {
			return c, nil
		}
	}
}

// Close implements [transport.Transport].
func (e *endpoint) Close() error {
	e.network.mu.Lock()
	defer e.network.mu.Unlock()
	e.end(transport.ErrPeerClosed)
	return nil
}

// end closes the endpoint and its conns. Their peers get the error peer.
func (e *endpoint) end(peer error) {
	if e.closed {
		return
	}
	e.closed = true
	close(e.done)
	delete(e.host.endpoints, e.port)
	for _, c := range byNumber(e.conns) {
		c.closeWith(peer)
	}
}

// A pendingDial is a Dial in progress.
type pendingDial struct {
	from        *endpoint
	peer        string
	there, back orderedFlow
	done        chan struct{} // closed after conn or err is set
	conn        *conn
	err         error
}

// Dial implements [transport.Transport]. It takes a round trip, and the peer can accept
// the conn half a round trip later. During a partition Dial blocks.
func (e *endpoint) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sim: dial %s: %w", addr, err)
	}
	d, err := e.startDial(addr, peer)
	if err != nil {
		return nil, fmt.Errorf("sim: dial %s: %w", addr, err)
	}
	select {
	case <-d.done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-e.done:
		err = transport.ErrClosed
	}
	c, err := d.stop(err)
	if err != nil {
		return nil, fmt.Errorf("sim: dial %s: %w", addr, err)
	}
	return c, nil
}

// startDial sends the request to the other host. It locks Network.mu.
func (e *endpoint) startDial(addr, peer string) (*pendingDial, error) {
	n := e.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.closed {
		return nil, transport.ErrClosed
	}
	name, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, err
	}
	to := n.byName[name]
	if to == nil {
		return nil, fmt.Errorf("no host has the name %q", name)
	}
	key := e.addr + ">" + addr
	number := n.dials[key]
	n.dials[key]++
	d := &pendingDial{
		from:  e,
		peer:  peer,
		there: orderedFlow{link: n.link(e.host, to), rng: n.rng("dial %s #%d", key, number)},
		back:  orderedFlow{link: n.link(to, e.host), rng: n.rng("answer %s #%d", key, number)},
		done:  make(chan struct{}),
	}
	stream := fmt.Sprintf("%s #%d", key, number)
	d.there.send(0, func() {
		target := to.endpoints[port]
		d.back.send(0, func() { d.answer(target, stream) })
	})
	return d, nil
}

// answer completes the dial with the state of the other host.
func (d *pendingDial) answer(target *endpoint, stream string) {
	defer close(d.done)
	switch {
	case target == nil || target.closed:
		d.err = errors.New("no transport listens at this port")
		return
	case d.peer != "" && d.peer != target.identity:
		d.err = fmt.Errorf("%w: it is not %q", transport.ErrIdentity, d.peer)
		return
	case d.from.closed:
		d.err = transport.ErrClosed
		return
	}
	dialed, accepted := newConn(d.from, target, stream), newConn(target, d.from, "to "+stream)
	dialed.peer, accepted.peer = accepted, dialed
	d.conn = dialed
	dialed.notices.send(0, func() { target.backlog.push(accepted) })
}

// stop ends the dial with the given reason unless it has completed. It locks
// Network.mu.
func (d *pendingDial) stop(reason error) (*conn, error) {
	d.from.network.mu.Lock()
	defer d.from.network.mu.Unlock()
	d.there.drop()
	d.back.drop()
	switch {
	case d.conn != nil:
		return d.conn, nil
	case d.err != nil:
		return nil, d.err
	}
	return nil, reason
}
