// Package contain wraps a transport of the program so that its faults end only the Conn
// that they concern.
//
// [Listen] starts the transport of a factory. The result forwards each call and checks its
// outcome: a panic, a count that contradicts the contract and a call that does not return
// in time end the Conn, with a [FaultError] that names the transport, the peer and the
// call. A call that does not return is abandoned on its own goroutine, which never
// accesses memory of the caller afterwards: reads and writes go through buffers of this
// package. Registered memory is the exception: the transport keeps it.
//
// The wrapped transport has the capabilities of the inner one. It costs a copy and a
// switch of goroutines for each call. Built-in transports are not wrapped.
package contain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// Config configures the handling of faults.
type Config struct {
	// Limit is the time after which a call that should have returned is abandoned. 0
	// means five seconds.
	Limit time.Duration
	// Log receives a warning for each fault. Nil discards them.
	Log *slog.Logger
}

const defaultLimit = 5 * time.Second

// A guard runs the calls of one transport.
type guard struct {
	name  string
	limit time.Duration
	log   *slog.Logger
	// abandoned is the number of abandoned calls that have not returned.
	abandoned atomic.Int64
}

// A FaultError is a breach of the contract by a transport.
type FaultError struct {
	Transport, Peer string // Peer is empty for a fault of the transport as a whole
	Call            string
	Text            string
}

func (e *FaultError) Error() string {
	text := fmt.Sprintf("transport %q is faulty", e.Transport)
	if e.Peer != "" {
		text += fmt.Sprintf(", peer %q", e.Peer)
	}
	return fmt.Sprintf("%s: %s %s", text, e.Call, e.Text)
}

// Unwrap makes every fault an ErrPeerGone: the peer is lost.
func (e *FaultError) Unwrap() error { return transport.ErrPeerGone }

func (g *guard) fault(peer, call, format string, args ...any) *FaultError {
	e := &FaultError{Transport: g.name, Peer: peer, Call: call, Text: fmt.Sprintf(format, args...)}
	g.log.Warn("transport breaks its contract", "transport", g.name, "peer", peer, "call", call, "fault", e.Text)
	return e
}

// An outcome is the result of a call.
type outcome[T any] struct {
	value T
	err   error
}

// begin runs f on a goroutine of its own and turns a panic, or an exit of the
// goroutine, into a fault.
func begin[T any](g *guard, peer, call string, f func() (T, error)) <-chan outcome[T] {
	done := make(chan outcome[T], 1)
	go func() {
		var o outcome[T]
		returned := false
		defer func() {
			if !returned {
				what := recover()
				g.log.Debug("stack of a faulty transport", "transport", g.name, "stack", string(debug.Stack()))
				o.err = g.fault(peer, call, "panicked or exited: %v", what)
			}
			done <- o
		}()
		o.value, o.err = f()
		returned = true
	}()
	return done
}

// await waits for the outcome of a call. If the call has not returned within the limit
// after stop or end is closed, it is abandoned. late, if not nil, then receives its value. end may be nil.
func await[T any](g *guard, peer, call string, done <-chan outcome[T], stop, end <-chan struct{}, late func(T)) (T, error) {
	select {
	case o := <-done:
		return o.value, o.err
	case <-stop:
	case <-end:
	}
	timer := time.NewTimer(g.limit)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.value, o.err
	case <-timer.C:
	}
	return abandon(g, peer, call, done, late)
}

func abandon[T any](g *guard, peer, call string, done <-chan outcome[T], late func(T)) (none T, err error) {
	n := g.abandoned.Add(1)
	go func() {
		o := <-done
		g.abandoned.Add(-1)
		if late != nil && o.err == nil {
			late(o.value)
		}
	}()
	return none, g.fault(peer, call, "has not returned within %v and is abandoned; %d such calls are under way", g.limit, n)
}

// now returns a closed channel, for calls that must return at once.
func now() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// run runs a call that must return within the limit.
func run[T any](g *guard, peer, call string, f func() (T, error)) (T, error) {
	return await(g, peer, call, begin(g, peer, call, f), now(), nil, nil)
}

// runErr is run for a call that returns only an error.
func runErr(g *guard, peer, call string, f func() error) error {
	_, err := run(g, peer, call, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// Listen starts the transport of a factory and contains it.
func Listen(ctx context.Context, f transport.Factory, env transport.Env, cfg Config) (transport.Transport, error) {
	g := &guard{name: f.Name, limit: cfg.Limit, log: cfg.Log}
	if g.limit <= 0 {
		g.limit = defaultLimit
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	done := begin(g, "", "Listen", func() (transport.Transport, error) { return f.Listen(ctx, env) })
	inner, err := await(g, "", "Listen", done, ctx.Done(), nil, func(t transport.Transport) { closeLate(t) })
	if err != nil {
		return nil, err
	}
	if inner == nil {
		return nil, g.fault("", "Listen", "returned no transport and no error")
	}
	t := &contained{guard: g, inner: inner, closed: make(chan struct{}), conns: make(map[*conn]struct{})}
	t.addr, err = run(g, "", "Addr", func() (string, error) { return inner.Addr(), nil })
	if err == nil {
		t.can, err = run(g, "", "Capabilities", func() (transport.Capabilities, error) { return transport.CapabilitiesOf(inner), nil })
	}
	if err != nil {
		closeLate(inner)
		return nil, err
	}
	return t, nil
}

// closeLate closes c in the background, without waiting for it.
func closeLate(c interface{ Close() error }) {
	go func() {
		defer func() { _ = recover() }()
		c.Close()
	}()
}

// A contained checks the calls of a transport.
type contained struct {
	*guard
	inner  transport.Transport
	addr   string
	can    transport.Capabilities
	closed chan struct{}
	shut   sync.Once

	mu    sync.Mutex
	conns map[*conn]struct{}
}

func (t *contained) Name() string { return t.name }
func (t *contained) Addr() string { return t.addr }

// Capabilities implements [transport.Capable].
func (t *contained) Capabilities() transport.Capabilities {
	can := transport.Capabilities{Locality: t.can.Locality, Class: t.can.Class, Clear: t.can.Clear}
	if t.can.FileUser != nil {
		can.FileUser = t
	}
	return can
}

// OutOfFiles implements [transport.FileUser].
func (t *contained) OutOfFiles() error {
	return runErr(t.guard, "", "OutOfFiles", t.can.FileUser.OutOfFiles)
}

func (t *contained) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	name := peer
	if name == "" {
		name = addr
	}
	inner, err := t.connect(ctx, name, "Dial", func() (transport.Conn, error) { return t.inner.Dial(ctx, addr, peer) })
	if err != nil {
		return nil, err
	}
	c, err := t.adopt(inner, name)
	if err == nil && peer != "" && c.peer != peer {
		err = fmt.Errorf("%w: %w", transport.ErrIdentity, t.fault(peer, "Dial", "returned a Conn of the peer %q", c.peer))
		c.Close()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (t *contained) Accept(ctx context.Context) (transport.Conn, error) {
	inner, err := t.connect(ctx, "", "Accept", func() (transport.Conn, error) { return t.inner.Accept(ctx) })
	if err != nil {
		return nil, err
	}
	c, err := t.adopt(inner, "")
	if err != nil {
		return nil, err
	}
	return c, nil
}

// connect runs a call that returns a Conn, and that has to return when ctx ends or the
// transport is closed.
func (t *contained) connect(ctx context.Context, peer, call string, f func() (transport.Conn, error)) (transport.Conn, error) {
	c, err := await(t.guard, peer, call, begin(t.guard, peer, call, f), ctx.Done(), t.closed, func(c transport.Conn) { closeLate(c) })
	if err == nil && c == nil {
		err = t.fault(peer, call, "returned no Conn and no error")
	}
	return c, err
}

// Close closes all conns, and returns even if the transport does not.
func (t *contained) Close() (err error) {
	t.shut.Do(func() {
		close(t.closed)
		err = runErr(t.guard, "", "Close", t.inner.Close)
		t.mu.Lock()
		conns := t.conns
		t.conns = nil
		t.mu.Unlock()
		for c := range conns {
			c.finish(fmt.Errorf("transport %q: %w", t.name, transport.ErrClosed))
		}
		if _, faulty := errors.AsType[*FaultError](err); faulty {
			err = nil // It has been logged, and the caller can do nothing about it.
		}
	})
	return err
}
