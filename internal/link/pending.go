package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

var (
	// ErrConnected is returned by Connect and Accept if the link has a connection already.
	ErrConnected = errors.New("link: it has a connection already")
	errEnded     = errors.New("link: it has ended")
	errOld       = errors.New("link: the peer has proposed the connection before it used another one")
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
func (l *Link) IsPending() bool { return l.at.Load() == nil }

// IsNeeded reports whether a pending link needs a connection because frames or transfers wait.
func (l *Link) IsNeeded() bool {
	x := l.with.Load()
	return x != nil && (x.data.needs() != NoPurpose || x.control.needs() != NoPurpose || !x.bulk.isIdle())
}

// Need calls the function of [NewCommon], unless it was called before or the link has a
// connection. p is the reason.
func (l *Link) Need(p Purpose) {
	if l.common.need != nil && l.IsPending() && l.purpose.CompareAndSwap(uint32(NoPurpose), uint32(p)) {
		l.common.need(l)
	}
}

// renew lets a link that has become pending again connect for the reason again, or because frames or
// goroutines of this node wait.
func (l *Link) renew(again Purpose) {
	x := l.exchange()
	for _, purpose := range []func() Purpose{func() Purpose { return again }, x.data.needs, x.control.needs} {
		if p := purpose(); p != NoPurpose {
			l.Need(p)
			return
		}
	}
	if l.waiters.Load() > 0 || !x.bulk.isIdle() {
		l.Need(Waiting)
	}
}

// ErrFramesLost is the reason for the end of a link whose last connection broke with frames in flight. The
// peer can be reached.
var ErrFramesLost = errors.New("frames were lost with a connection")

// resume returns the counts of this side, or nil if nothing was counted yet.
func (l *Link) resume() *wire.Resume {
	var r wire.Resume
	x := l.exchange()
	l.ending.Lock()
	r.Handled = x.handled
	l.ending.Unlock()
	for _, o := range []*outbox{&x.control, &x.data} {
		o.mu.Lock()
		r.Sent[o.lane] = o.written
		o.mu.Unlock()
	}
	x.bulk.mu.Lock()
	r.Sent[wire.Bulk] = x.bulk.begun
	x.bulk.mu.Unlock()
	if r == (wire.Resume{}) {
		return nil
	}
	return &r
}

// compareCounts returns [ErrFramesLost] with a lane if the counts of both sides differ. Each may be nil.
func compareCounts(ours, theirs *wire.Resume) error {
	var a, b wire.Resume
	if ours != nil {
		a = *ours
	}
	if theirs != nil {
		b = *theirs
	}
	for lane := range wire.Lanes {
		switch {
		case a.Sent[lane] != b.Handled[lane]:
			return fmt.Errorf("%w: this node has sent %d frames on the %v lane, and the peer has received %d", ErrFramesLost, a.Sent[lane], lane, b.Handled[lane])
		case b.Sent[lane] != a.Handled[lane]:
			return fmt.Errorf("%w: the peer has sent %d frames on the %v lane, and this node has received %d", ErrFramesLost, b.Sent[lane], lane, a.Handled[lane])
		}
	}
	return nil
}

// checkResume compares the counts of both sides. Each may be nil. If frames were lost, it ends the link.
func (l *Link) checkResume(ours, theirs *wire.Resume) error {
	err := compareCounts(ours, theirs)
	if err == nil {
		return nil
	}
	l.ending.Lock()
	broke := l.broke
	l.ending.Unlock()
	if broke != nil {
		err = fmt.Errorf("%w; the connection ended because of: %v", err, broke)
	}
	err = fmt.Errorf("%w: %w", transport.ErrPeerGone, err)
	l.FailPending(err)
	return err
}

// turns returns the number of connections of the link that have ended.
func (l *Link) turns() uint32 {
	l.ending.Lock()
	defer l.ending.Unlock()
	return l.turn
}

// Connect proposes a connection that this node has made to the peer, and gives it to a pending link
// when the peer has accepted it. The fields Bulk, BulkOver, BulkPipes and Relay of cfg belong to the
// connection; the other fields are ignored. If Connect fails, the caller keeps the connections, and
// no frame is lost. If frames were lost with an earlier connection, the link ends.
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
	ours := l.resume()
	if err := interruptible(ctx, conn, func() error { _, err := control.Write(a.announcement(ours)); return err }); err != nil {
		return fmt.Errorf("link: propose a connection: %w", err)
	}
	pipe, theirs, resume, err := firstLane(ctx, conn)
	if err != nil {
		return fmt.Errorf("link: the peer has not accepted the connection: %w", err)
	}
	if err := l.checkResume(ours, resume); err != nil {
		return err
	}
	return a.bind(ctx, control, pipe, theirs, confirmation())
}

// confirmTimeout bounds the time from the acceptance of a connection until the peer has confirmed it.
const confirmTimeout = 20 * time.Second

// Accept waits until the peer proposes a connection that it has made, accepts it if admit, which may block,
// returns no error, and gives it to a pending link when the peer has confirmed, within confirmTimeout, that it uses
// the connection. The fields Await, BulkOver, BulkPipes and Relay of cfg belong to the connection. If Accept fails, the caller keeps
// the connection, and no frame is lost: the peer may give up before it has read the acceptance. If frames were
// lost with an earlier connection, the link ends, and the peer is told.
func (l *Link) Accept(ctx context.Context, conn transport.Conn, cfg Config, admit func() error) error {
	a, turn := newAttachment(l, firstPath(conn, cfg), cfg), l.turns()
	pipe, theirs, resume, err := firstLane(ctx, conn)
	if err != nil {
		return err
	}
	if theirs.Lane != wire.Control {
		return fmt.Errorf("link: protocol error: the peer begins with the %v lane", theirs.Lane)
	}
	if err := admit(); err != nil {
		return err
	}
	answered, err := l.beginAnswer()
	if err != nil {
		return err
	}
	defer answered()
	limited, cancel := context.WithTimeoutCause(ctx, confirmTimeout, fmt.Errorf("no answer within %v", confirmTimeout))
	defer cancel()
	control, err := a.first.open(limited, wire.Control)
	if err != nil {
		return err
	}
	ours := l.resume()
	if l.turns() != turn && compareCounts(ours, resume) != nil {
		return errOld
	}
	differs := l.checkResume(ours, resume)
	err = interruptible(limited, conn, func() error { _, err := control.Write(a.announcement(ours)); return err })
	if differs != nil {
		select { // The peer closes the connection when it has read the counts.
		case <-conn.Done():
		case <-ctx.Done():
		case <-time.After(lingerTime):
		}
		return differs
	}
	if err == nil {
		err = interruptible(limited, conn, func() error { return awaitConfirmation(pipe) })
	}
	if err != nil {
		return fmt.Errorf("link: the peer %s at %s has not confirmed the connection: %w", conn.Peer(), conn.RemoteAddr(), err)
	}
	return a.bind(ctx, control, pipe, theirs, nil)
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
	if t := wire.Type(b[0]); t != wire.TypePong {
		return fmt.Errorf("link: protocol error: the control lane begins with a frame of type %d, want %d", t, wire.TypePong)
	}
	return nil
}

// beginAnswer marks the link as about to be bound: the peer may use the connection as soon as it has read the
// acceptance, and [Link.Close] waits. The caller calls answered afterwards.
func (l *Link) beginAnswer() (answered func(), err error) {
	l.ending.Lock()
	defer l.ending.Unlock()
	switch {
	case l.over:
		return nil, errEnded
	case l.running || l.answering != nil:
		return nil, ErrConnected
	}
	l.answering = make(chan struct{})
	return func() {
		l.ending.Lock()
		defer l.ending.Unlock()
		close(l.answering)
		l.answering = nil
	}, nil
}

// firstLane accepts the first pipe of the peer and reads its preamble, with the Resume that may follow.
func firstLane(ctx context.Context, conn transport.Conn) (pipe transport.Receiver, pre wire.Preamble, resume *wire.Resume, err error) {
	pipe, err = conn.AcceptPipe(ctx)
	if err != nil {
		return nil, pre, nil, err
	}
	err = interruptible(ctx, conn, func() (err error) {
		if pre, err = acceptLane(pipe); err == nil && pre.Flags.Has(wire.PreambleResumes) {
			resume, err = readResume(pipe)
		}
		return err
	})
	return pipe, pre, resume, err
}

func readResume(pipe transport.Receiver) (*wire.Resume, error) {
	var b [wire.ResumeSize]byte
	pipe.SetReadDeadline(time.Now().Add(laneTimeout))
	defer pipe.SetReadDeadline(time.Time{})
	if _, err := io.ReadFull(pipe, b[:]); err != nil {
		return nil, fmt.Errorf("read the counts of a link: %w", err)
	}
	r, err := wire.ParseResume(b[:])
	return &r, err
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

// bind gives the link the connections of the attachment. The peer has opened pipe as the lane theirs.
// announcement, unless it is nil, is still to be sent on the control lane.
func (a *attachment) bind(ctx context.Context, control transport.Sender, pipe transport.Receiver, theirs wire.Preamble, announcement []byte) error {
	l := a.link
	l.ending.Lock()
	connected, over := l.running, l.over
	l.running = true // No other connection is bound, and nobody else ends the link.
	l.ending.Unlock()
	switch {
	case over:
		return errEnded
	case connected:
		return ErrConnected
	}
	lanes, err := a.openAll(ctx, control)
	l.ending.Lock()
	defer l.ending.Unlock()
	if err == nil && l.over {
		err = errEnded
	}
	if err != nil {
		if l.running = false; l.over {
			l.stopLocked()
		}
		return err
	}
	a.startLocked(lanes, announcement, pipe, theirs)
	return nil
}

// FailPending is [Link.Fail] for a link that is still pending. It reports whether it was.
func (l *Link) FailPending(err error) bool {
	l.ending.Lock()
	defer l.ending.Unlock()
	if l.running || l.over {
		return false
	}
	l.failure = err
	l.stopLocked()
	return true
}

// awaitConnection returns whether the link has a connection. It waits for one that is needed or about
// to be bound. Otherwise a pending link gets none any more.
func (l *Link) awaitConnection(ctx context.Context) bool {
	for {
		l.ending.Lock()
		answering := l.answering
		if !l.running && answering == nil && !l.IsNeeded() {
			l.closing = true
			l.stopLocked()
			l.ending.Unlock()
			return false
		}
		l.ending.Unlock()
		if answering == nil {
			return l.awaitPending(ctx)
		}
		select {
		case <-answering: // bound, or given up by the peer
		case <-ctx.Done():
			return l.awaitPending(ctx)
		}
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

// AwaitNeeded waits until a link that needs a connection has one or has ended. An idle connection that is being closed is waited
// for first, since frames may have been sent meanwhile. It reports whether the link has a connection.
func (l *Link) AwaitNeeded(ctx context.Context) bool {
	for {
		a := l.detaching()
		if a == nil {
			break
		}
		select {
		case <-a.ended:
		case <-ctx.Done():
			return false
		}
	}
	if l.IsPending() && l.IsNeeded() {
		return l.awaitPending(ctx)
	}
	return !l.IsPending()
}

// detaching returns the attachment of the link if its connection is being closed because it is idle, or nil.
func (l *Link) detaching() *attachment {
	l.ending.Lock()
	defer l.ending.Unlock()
	if a := l.at.Load(); a != nil && a.idle && !l.over {
		return a
	}
	return nil
}
