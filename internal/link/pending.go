package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

var (
	// ErrConnected is returned by Connect and Accept if the link has a connection already.
	ErrConnected = errors.New("link: it has a connection already")
	errEnded     = errors.New("link: it has ended")
)

// NewPending returns a link without a connection. Frames wait until [Link.Connect] or [Link.Accept]
// gives it one. The first frame that needs a connection calls need, once; need must not block.
// Credit bounds the waiting payloads, and the calls of this node bound the other frames.
//
// A pending link has no goroutine. It ends by Fail, Abort and Close, as a link with a connection
// does; Close waits for the connection if frames wait.
func NewPending(h Handler, cfg Config, need func()) *Link {
	l := newLink(h, cfg)
	l.need = need
	return l
}

// IsPending reports whether the link has had no connection yet.
func (l *Link) IsPending() bool { return l.first.Load() == nil }

// IsNeeded reports whether a pending link needs a connection: frames wait.
func (l *Link) IsNeeded() bool { return l.Purpose() != NoPurpose }

// Need calls the function of [NewPending], unless it was called before or the link has a
// connection. p is the reason.
func (l *Link) Need(p Purpose) {
	if l.need != nil && l.IsPending() && l.purpose.CompareAndSwap(uint32(NoPurpose), uint32(p)) {
		l.need()
	}
}

// Connect offers a connection that this node has made to the peer, and gives it to a pending link
// when the peer has accepted it. The fields Bulk, BulkOver and BulkPipes of cfg belong to the
// connection; the other fields are ignored. If Connect fails, the caller keeps the connections, and
// no frame is lost.
func (l *Link) Connect(ctx context.Context, conn transport.Conn, cfg Config) error {
	switch {
	case l.life.Err() != nil:
		return errEnded
	case !l.IsPending():
		return ErrConnected
	}
	p := newPath(conn, int(wire.Lanes))
	control, err := p.open(ctx, wire.Control)
	if err != nil {
		return err
	}
	pre := wire.Preamble{Lane: wire.Control, Apart: cfg.Bulk != nil}
	if err := interruptible(ctx, conn, func() error { _, err := control.Write(pre.Append(nil)); return err }); err != nil {
		return fmt.Errorf("link: offer a connection: %w", err)
	}
	pipe, theirs, err := firstLane(ctx, conn)
	if err != nil {
		return fmt.Errorf("link: the peer has not accepted the connection: %w", err)
	}
	return l.bind(ctx, p, control, cfg, pipe, theirs, false)
}

// Accept waits until the peer offers a connection that it has made, and gives it to a pending link
// if admit, which may block, returns no error. The fields Await, BulkOver and BulkPipes of cfg belong
// to the connection. If Accept fails, the caller keeps the connection, and no frame is lost.
func (l *Link) Accept(ctx context.Context, conn transport.Conn, cfg Config, admit func() error) error {
	p := newPath(conn, int(wire.Lanes))
	pipe, theirs, err := firstLane(ctx, conn)
	if err != nil {
		return err
	}
	if theirs.Lane != wire.Control {
		return fmt.Errorf("link: protocol error: the peer begins with the %v lane", theirs.Lane)
	}
	if err := admit(); err != nil {
		return err
	}
	control, err := p.open(ctx, wire.Control)
	if err != nil {
		return err
	}
	return l.bind(ctx, p, control, cfg, pipe, theirs, true)
}

// firstLane accepts the first pipe of the peer and reads its preamble.
func firstLane(ctx context.Context, conn transport.Conn) (pipe transport.Receiver, pre wire.Preamble, err error) {
	pipe, err = conn.AcceptPipe(ctx)
	if err != nil {
		return nil, pre, err
	}
	err = interruptible(ctx, conn, func() (err error) { pre, err = acceptLane(pipe); return err })
	return pipe, pre, err
}

// interruptible calls f, and closes the connection if ctx ends meanwhile.
func interruptible(ctx context.Context, conn transport.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := f()
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// bind gives the link its connection. The peer has opened pipe as the lane theirs. announce says
// that the preamble of the control lane is still to be sent.
func (l *Link) bind(ctx context.Context, p *path, control transport.Sender, cfg Config, pipe transport.Receiver, theirs wire.Preamble, announce bool) error {
	l.ending.Lock()
	connected, ended := l.running, l.life.Err() != nil
	l.running = true // No other connection is bound, and nobody else starts run.
	l.ending.Unlock()
	switch {
	case ended:
		return errEnded
	case connected:
		return ErrConnected
	}
	l.cfg.Bulk, l.cfg.Await, l.cfg.BulkOver, l.cfg.BulkPipes = cfg.Bulk, cfg.Await, cfg.BulkOver, cfg.BulkPipes
	lanes, err := l.openAll(ctx, p, control)
	l.ending.Lock()
	defer l.ending.Unlock()
	if err != nil {
		if l.running = false; l.life.Err() != nil {
			l.stopPendingLocked()
		}
		return err
	}
	l.startLocked(lanes, announce, pipe, theirs)
	return nil
}

// stopPendingLocked lets a pending link end: it starts run, which no connection has started.
func (l *Link) stopPendingLocked() {
	if !l.running {
		l.running = true
		go l.run()
	}
}

// FailPending is [Link.Fail] for a link that is still pending. It reports whether it was.
func (l *Link) FailPending(err error) bool {
	l.ending.Lock()
	pending := !l.running
	if pending {
		l.failure = err
		l.stopPendingLocked()
	}
	l.ending.Unlock()
	if pending {
		l.cancel()
	}
	return pending
}

// awaitConnection returns whether the link has a connection. It waits for one that is needed or about
// to be bound. Otherwise a pending link gets none any more.
func (l *Link) awaitConnection(ctx context.Context) bool {
	l.ending.Lock()
	if !l.running && !l.IsNeeded() {
		l.closing = true
		l.stopPendingLocked()
		l.ending.Unlock()
		return false
	}
	l.ending.Unlock()
	if l.IsPending() {
		select {
		case <-l.settled:
		case <-l.done:
		case <-ctx.Done():
		}
	}
	return !l.IsPending()
}

// AwaitNeeded waits until a link that needs a connection has one or has ended. It reports whether the
// link has one.
func (l *Link) AwaitNeeded(ctx context.Context) bool {
	if l.IsPending() && l.IsNeeded() {
		select {
		case <-l.settled:
		case <-l.done:
		case <-ctx.Done():
		}
	}
	return !l.IsPending()
}
