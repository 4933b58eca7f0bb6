package contain

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/transport"
)

// A conn is a Conn whose calls are checked. It ends when the inner one does, by the
// first fault, or when it is closed, whether or not the inner one ends then.
type conn struct {
	t            *contained
	inner        transport.Conn
	can          transport.Capabilities
	peer, remote string
	done         chan struct{}

	mu  sync.Mutex
	err error // set before done is closed
}

// adopt wraps a Conn of the transport.
func (t *contained) adopt(inner transport.Conn, name string) (*conn, error) {
	c := &conn{t: t, inner: inner, done: make(chan struct{})}
	ended, err := run(t.guard, name, "Peer, RemoteAddr, Capabilities or Done", func() (<-chan struct{}, error) {
		c.peer, c.remote, c.can = inner.Peer(), inner.RemoteAddr(), transport.CapabilitiesOf(inner)
		return inner.Done(), nil
	})
	if err != nil {
		closeLate(inner)
		return nil, err
	}
	t.mu.Lock()
	open := t.conns != nil
	if open {
		t.conns[c] = struct{}{}
	}
	t.mu.Unlock()
	if !open {
		closeLate(inner)
		return nil, transport.ErrClosed
	}
	go c.watch(ended)
	return c, nil
}

// watch ends the conn when the inner one has ended.
func (c *conn) watch(ended <-chan struct{}) {
	select {
	case <-ended:
		err, fault := run(c.t.guard, c.peer, "Err", func() (error, error) { return c.inner.Err(), nil })
		switch {
		case fault != nil:
			err = fault
		case err == nil:
			err = c.t.fault(c.peer, "Err", "is nil, although Done is closed")
		}
		c.finish(err)
	case <-c.done:
	}
}

// finish ends the conn for a reason. The first reason counts.
func (c *conn) finish(reason error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = reason
		close(c.done)
	}
	c.mu.Unlock()
	if first {
		c.t.mu.Lock()
		delete(c.t.conns, c)
		c.t.mu.Unlock()
	}
}

// fail ends the conn because of a fault, and closes the inner one without waiting
// for it.
func (c *conn) fail(err error) error {
	c.finish(err)
	closeLate(c.inner)
	return err
}

func (c *conn) Peer() string          { return c.peer }
func (c *conn) RemoteAddr() string    { return c.remote }
func (c *conn) Done() <-chan struct{} { return c.done }

func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	can := transport.Capabilities{Locality: c.can.Locality, Class: c.can.Class}
	if c.can.TLSConn != nil {
		can.TLSConn = c
	}
	if c.can.Authenticator != nil {
		can.Authenticator = c
	}
	return can
}

// ConnectionState is zero, which exports no keying material, after a fault.
func (c *conn) ConnectionState() tls.ConnectionState {
	state, err := run(c.t.guard, c.peer, "ConnectionState", func() (tls.ConnectionState, error) {
		return c.can.TLSConn.ConnectionState(), nil
	})
	if err != nil {
		c.fail(err)
	}
	return state
}

func (c *conn) MarkAuthenticated() bool {
	ok, err := run(c.t.guard, c.peer, "MarkAuthenticated", func() (bool, error) { return c.can.Authenticator.MarkAuthenticated(), nil })
	if err != nil {
		c.fail(err)
	}
	return ok && err == nil
}

func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := pipeOf(ctx, c, "OpenPipe", func(ctx context.Context) (transport.Sender, error) { return c.inner.OpenPipe(ctx) })
	if err != nil {
		return nil, err
	}
	return &sender{pipe: newPipe(c), inner: s}, nil
}

func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	r, err := pipeOf(ctx, c, "AcceptPipe", func(ctx context.Context) (transport.Receiver, error) { return c.inner.AcceptPipe(ctx) })
	if err != nil {
		return nil, err
	}
	return &receiver{pipe: newPipe(c), inner: r}, nil
}

// pipeOf carries out a call that returns a pipe, and has to return when ctx or the
// conn ends.
func pipeOf[P interface {
	comparable
	Close() error
}](ctx context.Context, c *conn, call string, f func(context.Context) (P, error)) (none P, err error) {
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	released := make(chan struct{})
	defer close(released)
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-released:
		}
	}()
	done := begin(c.t.guard, c.peer, call, func() (P, error) { return f(ctx) })
	p, err := await(c.t.guard, c.peer, call, done, stop.Done(), func(p P) { closeLate(p) })
	if err == nil && p == none {
		err = c.t.fault(c.peer, call, "returned no pipe and no error")
	}
	return p, c.check(err)
}

// check ends the conn if err is a fault.
func (c *conn) check(err error) error {
	if _, faulty := err.(*FaultError); faulty {
		return c.fail(err)
	}
	return err
}

// Close ends the conn, and waits for the inner one within the limit.
func (c *conn) Close() error {
	c.finish(fmt.Errorf("transport %q: %w", c.t.name, transport.ErrClosed))
	err := runErr(c.t.guard, c.peer, "Close", c.inner.Close)
	if _, faulty := err.(*FaultError); faulty {
		return nil
	}
	return err
}
