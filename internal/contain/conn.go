package contain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/transport"
)

// A conn checks the calls of a Conn. It ends with the inner one, by the first fault, or
// when it is closed, even if the inner one does not end then.
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
			err = c.t.fault(c.peer, "Err", "returned nil although Done is closed")
		}
		c.finish(err)
	case <-c.done:
	}
}

// finish ends the conn. Only the first reason counts.
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

// fail ends the conn because of a fault, and closes the inner one in the background.
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
	can := transport.Capabilities{Locality: c.can.Locality, Class: c.can.Class, Clear: c.can.Clear}
	if c.can.TLSConn != nil {
		can.TLSConn = c
	}
	if c.can.Authenticator != nil {
		can.Authenticator = c
	}
	if c.can.PairOpener != nil {
		can.PairOpener = c
	}
	if c.can.LargeOpener != nil {
		can.LargeOpener = c
	}
	if c.can.MemorySharer != nil {
		can.MemorySharer = c
	}
	if c.can.RemoteMemory != nil {
		can.RemoteMemory = c
	}
	return can
}

// ConnectionState implements [transport.TLSConn]. After a fault it returns a zero state,
// which exports no keying material.
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
	return c.openPipe(ctx, "OpenPipe", c.inner.OpenPipe)
}

// OpenPaired implements [transport.PairOpener].
func (c *conn) OpenPaired(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, "OpenPaired", c.can.PairOpener.OpenPaired)
}

// OpenLarge implements [transport.LargeOpener].
func (c *conn) OpenLarge(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, "OpenLarge", c.can.LargeOpener.OpenLarge)
}

func (c *conn) openPipe(ctx context.Context, call string, f func(context.Context) (transport.Sender, error)) (transport.Sender, error) {
	s, can, err := newEnd(ctx, c, call, f)
	if err != nil {
		return nil, err
	}
	return &sender{pipe: newPipe(c, can), inner: s}, nil
}

func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	r, can, err := newEnd(ctx, c, "AcceptPipe", c.inner.AcceptPipe)
	if err != nil {
		return nil, err
	}
	return &receiver{pipe: newPipe(c, can), inner: r}, nil
}

// newEnd runs a call that returns an end of a pipe, and looks up its capabilities.
func newEnd[P interface {
	comparable
	Close() error
}](ctx context.Context, c *conn, call string, f func(context.Context) (P, error)) (end P, can transport.Capabilities, err error) {
	var none P
	end, err = untilEnd(ctx, c, call, f, func(p P) { closeLate(p) })
	if err == nil && end == none {
		err = c.t.fault(c.peer, call, "returned no pipe and no error")
	}
	if err == nil {
		can, err = run(c.t.guard, c.peer, "Capabilities", func() (transport.Capabilities, error) { return transport.CapabilitiesOf(end), nil })
	}
	return end, can, c.check(err)
}

// untilEnd runs a call that has to return within the limit after ctx or the conn ends.
// late, if not nil, gets the result of an abandoned call.
func untilEnd[T any](ctx context.Context, c *conn, call string, f func(context.Context) (T, error), late func(T)) (T, error) {
	done := begin(c.t.guard, c.peer, call, func() (T, error) { return f(ctx) })
	return await(c.t.guard, c.peer, call, done, ctx.Done(), c.done, late)
}

// check ends the conn if err is a fault.
func (c *conn) check(err error) error {
	if isFault(err) {
		return c.fail(err)
	}
	return err
}

func isFault(err error) bool {
	_, ok := errors.AsType[*FaultError](err)
	return ok
}

// Close ends the conn, and waits for Close of the inner one up to the limit.
func (c *conn) Close() error {
	c.finish(fmt.Errorf("transport %q: %w", c.t.name, transport.ErrClosed))
	err := runErr(c.t.guard, c.peer, "Close", c.inner.Close)
	if isFault(err) {
		return nil
	}
	return err
}
