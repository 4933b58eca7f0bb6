package sim

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/nexar-go/nexar/transport"
)

// An endpoint is the Transport at one port of a host.
type endpoint struct {
	network *Network
	host    *Host
	port    int
	addr    string
	backlog *queue[*conn] // dialed and not yet accepted
	done    chan struct{} // closed when closed is set
	closed  bool
	conns   map[*conn]uint64 // numbered in the order of their creation
	made    uint64
}

func (e *endpoint) Name() string { return "sim" }
func (e *endpoint) Addr() string { return e.addr }

// Accept implements transport.Transport.
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

// accept takes the next conn, if there is one. It takes Network.mu itself.
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

// Close implements transport.Transport.
func (e *endpoint) Close() error {
	e.network.mu.Lock()
	defer e.network.mu.Unlock()
	e.end(transport.ErrPeerClosed)
	return nil
}

// end closes the endpoint and its conns, whose peers will be told there.
func (e *endpoint) end(there error) {
	if e.closed {
		return
	}
	e.closed = true
	close(e.done)
	delete(e.host.endpoints, e.port)
	for _, c := range byNumber(e.conns) {
		c.hangUp(there)
	}
}

// A dialing is a Dial that is under way.
type dialing struct {
	from        *endpoint
	peer        string
	there, back lane
	done        chan struct{} // closed when there is a result
	conn        *conn
	err         error
}

// Dial implements transport.Transport. It takes a round trip, and the peer can
// accept the conn after half a trip more. A Dial across a cut lasts until the
// cut is mended.
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

// startDial sends the first notice. It takes Network.mu itself.
func (e *endpoint) startDial(addr, peer string) (*dialing, error) {
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
		return nil, fmt.Errorf("there is no host %q", name)
	}
	key := e.addr + ">" + addr
	number := n.dials[key]
	n.dials[key]++
	d := &dialing{
		from:  e,
		peer:  peer,
		there: lane{link: n.link(e.host, to), chance: n.chance("dial %s #%d", key, number)},
		back:  lane{link: n.link(to, e.host), chance: n.chance("answer %s #%d", key, number)},
		done:  make(chan struct{}),
	}
	stream := fmt.Sprintf("%s #%d", key, number)
	d.there.send(0, func() {
		target := to.endpoints[port]
		d.back.send(0, func() { d.answer(target, stream) })
	})
	return d, nil
}

// answer ends the dialing with what the other host has answered.
func (d *dialing) answer(target *endpoint, stream string) {
	defer close(d.done)
	switch {
	case target == nil || target.closed:
		d.err = fmt.Errorf("nobody listens there")
		return
	case d.peer != "" && d.peer != target.addr:
		d.err = fmt.Errorf("%w: asked for %q", transport.ErrIdentity, d.peer)
		return
	case d.from.closed:
		d.err = transport.ErrClosed
		return
	}
	here, there := newConn(d.from, target, stream), newConn(target, d.from, "to "+stream)
	here.peer, there.peer = there, here
	d.conn = here
	here.notices.send(0, func() { target.backlog.push(there) })
}

// stop ends the dialing for the given reason, unless a conn came first. It
// takes Network.mu itself.
func (d *dialing) stop(reason error) (*conn, error) {
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
