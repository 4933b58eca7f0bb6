package tcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/transport"
)

const (
	// closeTimeout is the time that a closed conn waits for the peer to read that it was closed.
	closeTimeout = time.Second

	// queueMax limits the bytes of messages that wait for the peer to read them.
	queueMax = 64 << 10

	// pipesMax limits the number of pipes that the peer can open before they are accepted.
	pipesMax = 1 << 16
)

// A conn is a connection to one peer: a control socket for messages about pipes, and a
// socket for each pipe or pair of pipes.
//
// Pipes of the side that dialed have even numbers, those of the other side odd numbers.
// Paired pipes have the highest bit set. Numbers are never reused.
type conn struct {
	t      *Transport
	peer   string
	remote string
	dialed bool
	keys   keys
	sock   socket
	tls    *tls.Conn // on sock

	// The session of tls, for the sockets of pipes; nil if it cannot be resumed.
	dialedSession   *tls.ClientSessionState
	acceptedSession []byte

	ctx       context.Context // ends with the conn; its cause is the reason
	cancel    context.CancelCauseFunc
	pipeQuota chan struct{}  // contains an element for each open pipe of this side
	backlog   chan *receiver // pipes for AcceptPipe
	peerReady chan struct{}  // closed when the peer can find the conn by its keys
	queued    chan struct{}  // signals a change of queue
	writeDone chan struct{}  // closed when no more messages will be written
	drained   chan struct{}  // signals that the socket of a pipe of the peer has ended

	mu           sync.Mutex
	ended        bool
	nextID       uint32 // number of the next pipe, without pairedBit
	nextPairedID uint32 // the same for paired pipes
	outgoing     map[uint32]*sender
	incoming     map[uint32]*receiver
	shared       map[uint32]*sharedSocket // by half the number of their pipes
	proposals    map[uint32]*pipeSocket   // half sockets that await an answer of the peer, by pipe
	retired      map[uint32]*pipeSocket   // sockets of ended pipes, until the peer has heard of the end
	queue        []byte                   // encoded messages to be written
	fault        error                    // why this side ends the conn

	opening map[socket]*openingSocket // sockets of handshakes for pipes, until the peer has acknowledged their last bytes

	writing atomic.Bool // bytes are being written to the control socket

	// Used only by Transport.monitor.
	stall stallClock    // of the control socket
	rtt   time.Duration // of the control socket at the last sample
}

var (
	_ transport.Conn    = (*conn)(nil)
	_ transport.Capable = (*conn)(nil)
)

// Capabilities implements [transport.Capable]. A conn with plain pipes has no TLS.
func (c *conn) Capabilities() transport.Capabilities {
	can := c.t.class()
	can.PairOpener = c
	if !c.t.cfg.Plain {
		can.TLSConn = c
	}
	if c.peer == "" && !c.dialed {
		can.Authenticator = c
	}
	return can
}

// MarkAuthenticated implements [transport.Authenticator].
func (c *conn) MarkAuthenticated() bool { return c.t.pending.release(c.sock) }

// ConnectionState returns the state of the TLS session of the control socket.
func (c *conn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

func (t *Transport) newConn(m *controlHandshake) *conn {
	c := &conn{
		t:      t,
		peer:   m.peer,
		remote: eyeballs.PlainAddr(m.sock.RemoteAddr()),
		dialed: m.dialed,
		keys:   m.keys,
		sock:   m.sock,
		tls:    m.tls,

		dialedSession:   m.dialedSession.session.Load(),
		acceptedSession: m.acceptedSession,

		pipeQuota: make(chan struct{}, min(m.peerGreeting.pipesMax, pipesMax)),
		backlog:   make(chan *receiver, t.cfg.MaxPipes),
		peerReady: make(chan struct{}),
		queued:    make(chan struct{}, 1),
		writeDone: make(chan struct{}),
		drained:   make(chan struct{}, 1),
		outgoing:  make(map[uint32]*sender),
		incoming:  make(map[uint32]*receiver),
		shared:    make(map[uint32]*sharedSocket),
		proposals: make(map[uint32]*pipeSocket),
		retired:   make(map[uint32]*pipeSocket),
		opening:   make(map[socket]*openingSocket),
	}
	if !c.dialed {
		c.nextID, c.nextPairedID = 1, 1
		c.queue = message{kind: msgReady}.append(nil)
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

func (c *conn) Peer() string          { return cmp.Or(c.peer, c.remote) }
func (c *conn) RemoteAddr() string    { return c.remote }
func (c *conn) Done() <-chan struct{} { return c.ctx.Done() }
func (c *conn) Err() error            { return context.Cause(c.ctx) }

// Close ends the conn and returns when the kernel has the message that notifies the peer: at
// once, unless the control socket is blocked.
func (c *conn) Close() error {
	c.end(errConnClosed)
	<-c.writeDone
	return nil
}

// end ends the conn. Only the first reason counts.
func (c *conn) end(reason error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	senders, receivers, proposals, retired := c.outgoing, c.incoming, c.proposals, c.retired
	c.outgoing, c.incoming, c.proposals, c.retired, c.shared = nil, nil, nil, nil, nil
	if reason == errConnClosed {
		c.queue = message{kind: msgBye}.append(c.queue)
		c.sock.SetDeadline(time.Now().Add(closeTimeout))
	} else {
		c.queue = nil
		c.sock.Close()
	}
	c.mu.Unlock()

	// All pipes fail before Done is closed.
	for _, s := range senders {
		s.fail(reason)
	}
	for _, r := range receivers {
		r.fail(reason)
	}
	for _, ps := range retired {
		ps.release()
	}
	for id, ps := range proposals {
		c.releaseHalf(id, ps)
	}
	c.cancel(reason)
	c.t.remove(c)
	c.wakeWriter()
}

func (c *conn) isEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// spawn runs f on a goroutine of the transport. It reports false if the conn has ended.
func (c *conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.t.tasks.Go(f)
	}
	return !c.ended
}

// OpenPipe opens a pipe. It blocks while MaxPipes of the peer are open, and until the
// peer has acknowledged the new one.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, false)
}

// OpenPaired implements [transport.PairOpener].
func (c *conn) OpenPaired(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, true)
}

func (c *conn) openPipe(ctx context.Context, paired bool) (transport.Sender, error) {
	select {
	case c.pipeQuota <- struct{}{}:
	case <-c.ctx.Done():
		return nil, c.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s := c.addSender(paired)
	if s == nil {
		<-c.ctx.Done()
		return nil, c.Err()
	}
	if c.dialed {
		c.spawn(func() { c.dialSender(s) })
	} else {
		c.send(message{kind: msgWant, pipe: s.id})
	}
	select {
	case <-s.opened:
	case <-c.ctx.Done():
		return nil, c.Err()
	case <-ctx.Done():
		if s.abandon() {
			return nil, context.Cause(ctx)
		}
		// The peer is being told that the pipe is open.
		select {
		case <-s.opened:
		case <-c.ctx.Done():
			return nil, c.Err()
		}
	}
	if s.openErr != nil {
		return nil, s.openErr
	}
	return s, nil
}

// AcceptPipe returns the next pipe that the peer has opened.
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if c.ctx.Err() != nil {
		return nil, c.Err()
	}
	select {
	case r := <-c.backlog:
		return r, nil
	case <-c.ctx.Done():
		return nil, c.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// addSender registers a pipe of this side. It returns nil if the conn has ended.
func (c *conn) addSender(paired bool) *sender {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	next, bit := &c.nextID, uint32(0)
	if paired {
		next, bit = &c.nextPairedID, pairedBit
	}
	s := &sender{conn: c, id: *next | bit, opened: make(chan struct{}), done: make(chan struct{})}
	*next += 2
	c.outgoing[s.id] = s
	return s
}

// removeSender removes a pipe of this side and frees its quota.
func (c *conn) removeSender(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outgoing[s.id] == s {
		delete(c.outgoing, s.id)
		c.removeSharedLocked(s.id)
		<-c.pipeQuota
	}
}

func (c *conn) sender(id uint32) *sender {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.outgoing[id]
}

var (
	errPipeNumber = errors.New("the peer opened a pipe with an invalid or used number")
	errTooMany    = errors.New("the peer opened more pipes than Config.MaxPipes")
)

// addReceiver registers a pipe of the peer.
func (c *conn) addReceiver(id uint32) (*receiver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return nil, errConnClosed
	case id%2 == 0 == c.dialed, c.incoming[id] != nil, c.retired[id] != nil:
		return nil, errPipeNumber
	case len(c.incoming) >= c.t.cfg.MaxPipes, len(c.retired) > c.t.cfg.MaxPipes:
		return nil, errTooMany
	}
	r := &receiver{conn: c, id: id, ended: make(chan struct{}), done: make(chan struct{})}
	c.incoming[id] = r
	return r, nil
}

// removeReceiver removes a pipe of the peer, and reports whether it was registered.
func (c *conn) removeReceiver(r *receiver) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.incoming[r.id] != r {
		return false
	}
	delete(c.incoming, r.id)
	c.removeSharedLocked(r.id)
	return true
}

func (c *conn) receiver(id uint32) *receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.incoming[id]
}

// send queues a message for the peer. It does not block, and may be called with the lock
// of a pipe held.
func (c *conn) send(m message) {
	defer c.wakeWriter()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
	case len(c.queue) > queueMax:
		err := gone(fmt.Errorf("the peer does not read its control socket: more than %d bytes are queued", queueMax))
		c.t.tasks.Go(func() { c.end(err) }) // It needs the locks of pipes.
	default:
		c.queue = m.append(c.queue)
	}
}

func (c *conn) wakeWriter() {
	select {
	case c.queued <- struct{}{}:
	default:
	}
}

// writeMessages writes the queue to the control socket until the conn has ended.
func (c *conn) writeMessages() {
	defer close(c.writeDone)
	var spare []byte
	for {
		c.mu.Lock()
		b, over := c.queue, c.ended
		c.queue = spare[:0]
		c.mu.Unlock()
		spare = b
		if len(b) > 0 {
			c.writing.Store(true)
			c.t.monitoring.note()
			_, err := c.tls.Write(b)
			c.writing.Store(false)
			if err != nil {
				c.failSoon(err)
				return
			}
			continue
		}
		if over {
			_ = c.sock.CloseWrite()
			return
		}
		<-c.queued
	}
}

// failSoon leaves the end of the conn to receive after the failure of a socket: the peer may have closed the conn, and its message is
// still to be read. If not, the peer answers msgBroken by the end of the control socket.
func (c *conn) failSoon(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended && c.fault == nil {
		c.fault = err
		c.sock.SetReadDeadline(time.Now().Add(closeTimeout))
	}
}

// readMessages reads the control socket until it ends, and then ends the conn.
func (c *conn) readMessages() {
	c.endDrained(c.receive())
	<-c.writeDone
	c.sock.Close()
}

// receive handles messages of the peer until the last, and returns the reason for the end.
// After the conn was closed here, it discards messages until the peer has read the close:
// closing a socket with unread data resets it, and the peer would lose unread data.
func (c *conn) receive() error {
	var buf [messageBytes]byte
	for {
		m, err := readMessage(c.tls, &buf)
		if err == nil && m.kind == msgBye {
			return errPeerClosed
		}
		if err != nil {
			return c.controlError(err)
		}
		if c.isEnded() {
			continue
		}
		if err := c.handle(m); err != nil {
			c.end(gone(err)) // at once, and without the messages of a peer that violates the protocol
		}
	}
}

func (c *conn) handleReady() error {
	select {
	case <-c.peerReady:
		return errors.New("the peer sent message 'r' twice")
	default:
		close(c.peerReady)
		return nil
	}
}

// controlError returns the reason for the end of the conn when the control socket fails.
func (c *conn) controlError(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return gone(cmp.Or(c.fault, err))
}

func (c *conn) handle(m message) error {
	switch m.kind {
	case msgReady:
		return c.handleReady()
	case msgWant:
		return c.handleWant(m.pipe)
	case msgShare:
		return c.handleShare(m.pipe)
	case msgTake:
		return c.handleTake(m.pipe)
	case msgCannot:
		if ps := c.takeProposal(m.pipe); ps != nil {
			c.handleDecline(m.pipe, ps)
		} else if s := c.sender(m.pipe); s != nil && !c.dialed && s.abandon() {
			c.removeSender(s)
			s.open(nil, errNoSocket)
		}
	case msgEnd:
		if r := c.receiver(m.pipe); r != nil {
			if err := r.handleEnd(m.n); err != nil {
				return err
			}
		}
		c.send(message{kind: msgHeard, pipe: m.pipe})
	case msgDrop:
		if s := c.sender(m.pipe); s != nil {
			c.removeSender(s)
			s.fail(errPipeAbandoned)
		}
		c.send(message{kind: msgHeard, pipe: m.pipe})
	case msgHeard:
		c.handleHeard(m.pipe)
	case msgBroken:
		c.end(c.controlError(fmt.Errorf("the peer reports that the socket of pipe %d has failed", m.pipe)))
	default:
		return fmt.Errorf("the peer sent unknown message %q on the control socket", m.kind)
	}
	return nil
}
