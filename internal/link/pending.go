package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/link/lane"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

var (
	// ErrConnected is returned by Connect and Accept if the link has a connection already.
	ErrConnected = lane.ErrConnected
	// ErrLost is the reason of the end of a connection that the peer has lost: it proposes another one.
	ErrLost  = errors.New("link: the peer has lost the connection")
	errEnded = errors.New("link: it has ended")
)

// NewPending returns a link to a peer without a connection. Frames wait until [Link.Connect] or [Link.Accept]
// gives it one. The first frame that needs a connection calls the function of [NewCommon] with the link, once; the function must
// not block.
// Credit bounds the waiting payloads, and the calls of this node bound the other frames.
//
// A pending link has no goroutine. It ends by Fail, Abort and Close, as a link with a connection
// does; Close waits for the connection if frames wait.
func (c *Common) NewPending(peer int) *Link { return &Link{Peer: peer, common: c} }

// IsPending reports whether the link has no connection.
func (l *Link) IsPending() bool { return l.attached.Load() == nil }

// IsUsed reports whether the link has, or had, a connection, or frames that need one. Other links are small.
func (l *Link) IsUsed() bool { return l.exchanged.Load() != nil }

// IsNeeded reports whether a pending link needs a connection: frames or transfers wait, or [Link.Need] was called since the last one ended.
// The peer may have frames then of which it does not know that they have arrived.
func (l *Link) IsNeeded() bool {
	x := l.exchanged.Load()
	return x != nil && (x.connected.Load() && l.Purpose() != NoPurpose || x.data.needs() != NoPurpose || x.control.needs() != NoPurpose || !x.bulk.isIdle())
}

// Need calls the function of [NewCommon], unless it was called before or the link has a
// connection. p is the reason.
func (l *Link) Need(p Purpose) {
	if l.common.need != nil && l.IsPending() && l.purpose.CompareAndSwap(uint32(NoPurpose), uint32(p)) {
		l.common.need(l)
	}
}

// renew lets a link that has become pending again connect because frames or goroutines of this node wait.
func (l *Link) renew() {
	x := l.exchange()
	p := cmp.Or(x.data.needs(), x.control.needs())
	if p == NoPurpose && (l.waiters.Load() > 0 || !x.bulk.isIdle()) {
		p = Waiting
	}
	if p != NoPurpose {
		l.Need(p)
	}
}

// begin begins a proposal of this node, or the acceptance of one of the peer, until giveUp. After the acceptance the peer may use the
// connection as soon as it has read it, and [Link.Close] waits.
func (a *attachment) begin(accepts bool) (err error) {
	l, x := a.link, a.link.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.over.hasHappened() {
		return errEnded
	}
	if a.claim, err = x.session.Begin(accepts, l.common.numbers.Add(1)); err == nil && accepts {
		l.answering = make(chan struct{})
	}
	return err
}

// giveUp undoes begin.
func (a *attachment) giveUp(accepts bool) {
	l := a.link
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.exchange().session.GiveUp(accepts); accepts {
		close(l.answering)
		l.answering = nil
		if x := l.exchange(); x.unanswered != nil {
			l.failPendingLocked(x.unanswered)
			x.unanswered = nil
		}
	}
}

// Connect proposes a connection that this node has made to the peer, and gives it to a pending link
// when the peer has accepted it. The fields Bulk, BulkOver, BulkPipes and Relay of cfg belong to the
// connection; the other fields are ignored. If Connect fails, the caller keeps the connections, and
// no frame is lost.
func (l *Link) Connect(ctx context.Context, conn transport.Conn, cfg Config) error {
	switch {
	case l.IsOver():
		return errEnded
	case !l.IsPending():
		return ErrConnected
	}
	a := newAttachment(l, firstPath(conn, cfg), cfg)
	control, err := a.first.open(ctx, wire.Control)
	if err != nil {
		return err
	}
	if err := a.begin(false); err != nil {
		return err
	}
	defer a.giveUp(false)
	ours := a.received()
	if err := interruptible(ctx, conn, func() error { _, err := control.Write(a.opening(&ours)); return err }); err != nil {
		return fmt.Errorf("link: propose a connection: %w", err)
	}
	pipe, theirs, resume, err := firstLane(ctx, conn)
	if err != nil {
		return fmt.Errorf("link: the peer has not accepted the connection: %w", err)
	}
	if err := a.checkResume(&resume); err != nil {
		return err
	}
	return a.bind(ctx, control, pipe, theirs, resume, confirmation())
}

// Accept waits until the peer proposes a connection that it has made, accepts it if admit, which may block,
// returns no error, and gives it to a pending link when the peer has confirmed, within deadline.Handshake, that it uses
// the connection. A link with a connection that the peer has lost becomes pending before that, or ends, as it does when its connection
// breaks. The fields Await, BulkOver, BulkPipes and Relay of cfg belong to the connection. If Accept fails, the caller keeps
// the connection, and no frame is lost: the peer may give up before it has read the acceptance.
func (l *Link) Accept(ctx context.Context, conn transport.Conn, cfg Config, admit func() error) error {
	a := newAttachment(l, firstPath(conn, cfg), cfg)
	pipe, theirs, resume, err := firstLane(ctx, conn)
	if err != nil {
		return err
	}
	if theirs.Lane != wire.Control {
		return fmt.Errorf("link: protocol error: the peer begins with the %v lane", theirs.Lane)
	}
	if err := l.leaveLost(ctx, &resume); err != nil {
		return err
	}
	if err := admit(); err != nil {
		return err
	}
	if err := a.begin(true); err != nil {
		return err
	}
	defer a.giveUp(true)
	limited, cancel := context.WithTimeoutCause(ctx, deadline.Handshake, fmt.Errorf("no answer within %v", deadline.Handshake))
	defer cancel()
	control, err := a.first.open(limited, wire.Control)
	if err != nil {
		return err
	}
	ours := a.received()
	if err := a.checkResume(&resume); err != nil {
		return err
	}
	err = interruptible(limited, conn, func() error { _, err := control.Write(a.opening(&ours)); return err })
	if err == nil {
		err = interruptible(limited, conn, func() error { return awaitConfirmation(pipe) })
	}
	if err != nil {
		return fmt.Errorf("link: the peer %s at %s has not confirmed the connection: %w", conn.Peer(), conn.RemoteAddr(), err)
	}
	return a.bind(limited, control, pipe, theirs, resume, nil)
}

// Refuse reads the proposal of a connection that the peer has made, although this node has no link for it, and tells the peer if it is for
// a link of this process that has ended. l is the link to the peer, or nil. Refuse blocks until the peer proposes the connection, conn
// ends, or ctx does; the caller closes conn.
func (c *Common) Refuse(ctx context.Context, conn transport.Conn, l *Link) {
	_, _, theirs, err := firstLane(ctx, conn)
	if err != nil || theirs.To.Process != c.process || l != nil && !l.hasEnded(&theirs) {
		return
	}
	control, err := newPath(conn, 1).open(ctx, wire.Control)
	if err != nil {
		return
	}
	ended := wire.Resume{To: theirs.From}
	pre := wire.Preamble{Lane: wire.Control, Flags: wire.PreambleResumes}
	if interruptible(ctx, conn, func() error { _, err := control.Write(ended.Append(pre.Append(nil))); return err }) == nil {
		awaitEndOf(ctx, conn)
	}
}

// hasEnded reports whether a proposal of the peer is for a link of this process that has ended.
func (l *Link) hasEnded(theirs *wire.Resume) bool {
	x := l.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.over.hasHappened() || x.session.IsForEarlier(theirs)
}

// awaitEndOf waits until the peer closes a connection, as it does when it has read the last answer, for deadline.Linger at most.
func awaitEndOf(ctx context.Context, conn transport.Conn) {
	select {
	case <-conn.Done():
	case <-ctx.Done():
	case <-time.After(deadline.Linger):
	}
}

// leaveLost ends the connection of the link if the peer has lost it: its proposal is newer. It waits until the link is pending or has
// ended. It returns an error if the proposal is older than the connection.
func (l *Link) leaveLost(ctx context.Context, theirs *wire.Resume) error {
	l.ending.Lock()
	a := l.attached.Load()
	isLost := a != nil && l.exchange().session.IsLost(theirs)
	l.ending.Unlock()
	switch {
	case a == nil:
		return nil
	case !isLost:
		return ErrConnected
	}
	a.broken(a.first, ErrLost)
	select {
	case <-a.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// confirmation returns the first frame on the control lane of the side that has made the connection, a beat: it uses
// the connection. Without it, that side could give up while its peer takes the connection for a link, and would seem to
// have closed a link without a goodbye.
func confirmation() []byte { return slices.Clone(beat) }

// awaitConfirmation reads the confirmation.
func awaitConfirmation(pipe transport.Receiver) error {
	b := confirmation()
	if _, err := io.ReadFull(pipe, b); err != nil {
		return err
	}
	if t := wire.Type(b[0]); t != wire.TypeBeat {
		return fmt.Errorf("link: protocol error: the control lane begins with a frame of type %d, want %d", t, wire.TypeBeat)
	}
	return nil
}

// firstLane accepts the first pipe of the peer and reads its preamble, with the Resume that may follow.
func firstLane(ctx context.Context, conn transport.Conn) (pipe transport.Receiver, pre wire.Preamble, resume wire.Resume, err error) {
	pipe, err = conn.AcceptPipe(ctx)
	if err != nil {
		return nil, pre, resume, err
	}
	err = interruptible(ctx, conn, func() (err error) {
		if pre, err = acceptLane(pipe); err == nil {
			resume, err = readResume(pipe, pre)
		}
		return err
	})
	return pipe, pre, resume, err
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

// bind gives the link the connections of the attachment. The peer has opened pipe as its control lane, with the preamble theirs, and
// resume says what it has received. first, unless it is nil, is sent before the frames that wait on the control lane.
func (a *attachment) bind(ctx context.Context, control transport.Sender, pipe transport.Receiver, theirs wire.Preamble, resume wire.Resume, first []byte) error {
	l := a.link
	if err := a.beginBind(); err != nil {
		return err
	}
	lanes, err := a.openAll(ctx, control)
	l.ending.Lock()
	defer l.ending.Unlock()
	l.exchange().binding = nil
	if err == nil && l.over.hasHappened() {
		err = errEnded
	}
	if err != nil {
		if l.exchange().session.Unbind(); l.over.hasHappened() {
			l.stopLocked()
		}
		return err
	}
	delivered, err := a.resumeLocked(&resume)
	if err != nil {
		l.exchange().session.Unbind()
		l.failure = fmt.Errorf("link: protocol error: %w", err)
		l.stopLocked()
		return l.failure
	}
	a.startLocked(lanes, first)
	a.readers.Go(func() {
		if err := a.enterAs(a.life, a.first, pipe, theirs); err != nil {
			a.protocolError(a.first, err)
		}
	})
	for _, t := range delivered {
		a.readers.Go(func() { t.Owner.Delivered(t) })
	}
	return nil
}

// beginBind makes the link that of the attachment alone: no other connection is bound, and nobody else ends the link.
func (a *attachment) beginBind() error {
	l, x := a.link, a.link.exchange()
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.over.hasHappened() {
		return errEnded
	}
	err := x.session.Bind(a.claim)
	if err == nil {
		x.binding = a.first.conn
	}
	return err
}

// FailPending is [Link.Fail] for a link that is still pending. It reports whether it was. While a connection of the peer is being accepted, the
// link ends only if that fails.
func (l *Link) FailPending(err error) bool {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.failPendingLocked(err)
}

// failPendingLocked is FailPending.
func (l *Link) failPendingLocked(err error) bool {
	switch {
	case l.isRunningLocked() || l.over.hasHappened():
		return false
	case l.answering != nil:
		l.exchange().unanswered = err
	default:
		l.failure = err
		l.stopLocked()
	}
	return true
}

// awaitConnection returns whether the link has a connection. It waits for one that is needed or about
// to be bound. Otherwise a pending link gets none any more.
func (l *Link) awaitConnection(ctx context.Context) bool {
	for {
		l.ending.Lock()
		answering := l.answering
		if !l.isRunningLocked() && answering == nil && !l.IsNeeded() {
			l.closing = true
			l.stopLocked()
			l.ending.Unlock()
			return false
		}
		l.ending.Unlock()
		if answering != nil {
			select {
			case <-answering: // bound, or given up by the peer
				continue
			case <-ctx.Done():
			}
		}
		if isConnected := l.awaitPending(ctx); isConnected || l.IsOver() || ctx.Err() != nil {
			return isConnected
		} // A connection has ended before it was settled.
	}
}

// awaitPending waits until the link is no longer pending or has ended. It reports whether the link has a
// connection.
func (l *Link) awaitPending(ctx context.Context) bool {
	if l.IsPending() {
		select {
		case <-l.Settled():
		case <-l.Done():
		case <-ctx.Done():
		}
	}
	return !l.IsPending() && !l.IsOver()
}

// AwaitNeeded waits until a link that needs a connection has one or has ended. If the link has ended, the Handler was notified. It reports whether the link has a
// connection.
func (l *Link) AwaitNeeded(ctx context.Context) bool {
	defer func() {
		if l.IsOver() {
			l.awaitEnd()
		}
	}()
	if l.IsPending() && l.IsNeeded() {
		return l.awaitPending(ctx)
	}
	return !l.IsPending()
}
