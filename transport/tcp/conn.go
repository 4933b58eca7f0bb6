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

	"github.com/nexar-go/nexar/transport"
)

const (
	// lingerMax is how long a Conn that was closed here waits for the peer to
	// have heard so.
	lingerMax = time.Second

	// verdictTick is how often a call that waits for a word about the socket
	// of a pipe looks at the clock.
	causeInterval = 20 * time.Millisecond

	// queueMax bounds the messages for a peer that does not read them.
	queueMax = 64 << 10

	// pipesMax bounds what a peer can say that it takes.
	pipesMax = 1 << 16
)

// A conn is a connection to one peer: a control socket, on which it is told
// what becomes of the pipes, and a socket for each pipe.
//
// The pipes of the side that has dialed have even numbers, those of the other
// one odd numbers, and those that are paired have the highest bit set. A number is
// never used again.
type conn struct {
	t      *Transport
	peer   string
	remote string
	dialed bool
	keys   keys
	sock   socket
	tls    *tls.Conn // on sock

	ctx       context.Context // ends with the conn, and says why
	cancel    context.CancelCauseFunc
	pipeQuota chan struct{}  // has something for each pipe of this side that is open
	backlog   chan *receiver // pipes that wait for AcceptPipe
	peerReady chan struct{}  // closed when the peer has the conn in its table
	queued    chan struct{}  // has something after the queue has changed
	writeDone chan struct{}  // closed when nothing more will be said

	mu           sync.Mutex
	ended        bool
	nextID       uint32 // the number of the next pipe, without pairedBit
	nextPairedID uint32 // the same of the next that is paired
	outgoing     map[uint32]*sender
	incoming     map[uint32]*receiver
	shared       map[uint32]*sharedSocket // by half the number of their pipes
	offers       map[uint32]*pipeSocket   // halves for pipes of which the peer has to answer
	queue        []byte                   // messages for the peer
	fault        error                    // why this side has cut the control socket

	lossy      atomic.Bool // senders keep copies of unacknowledged bytes
	lossyUntil time.Time   // used by monitor
}

var (
	_ transport.Conn    = (*conn)(nil)
	_ transport.Capable = (*conn)(nil)
)

// Capabilities implements [transport.Capable]. A conn whose pipes are in the clear
// has no TLS.
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

// ConnectionState is the state of the TLS session of the control socket.
func (c *conn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// A meeting is a control socket on which both sides know each other.
type controlHandshake struct {
	sock         socket
	tls          *tls.Conn
	keys         keys
	peer         string
	dialed       bool
	peerGreeting greeting
}

func (t *Transport) newConn(m controlHandshake) *conn {
	c := &conn{
		t:         t,
		peer:      m.peer,
		remote:    plainAddr(m.sock.RemoteAddr()),
		dialed:    m.dialed,
		keys:      m.keys,
		sock:      m.sock,
		tls:       m.tls,
		pipeQuota: make(chan struct{}, min(m.peerGreeting.pipesMax, pipesMax)),
		backlog:   make(chan *receiver, t.cfg.MaxPipes),
		peerReady: make(chan struct{}),
		queued:    make(chan struct{}, 1),
		writeDone: make(chan struct{}),
		outgoing:  make(map[uint32]*sender),
		incoming:  make(map[uint32]*receiver),
		shared:    make(map[uint32]*sharedSocket),
		offers:    make(map[uint32]*pipeSocket),
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

// Close ends the Conn, and returns when the kernel has the message for the
// peer that says so: at once, unless the network has stood still before.
func (c *conn) Close() error {
	c.end(errConnClosed)
	<-c.writeDone
	return nil
}

// end ends the conn. The first reason counts.
func (c *conn) end(reason error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	senders, receivers, offers := c.outgoing, c.incoming, c.offers
	c.outgoing, c.incoming, c.offers, c.shared = nil, nil, nil, nil
	if reason == errConnClosed {
		c.queue = message{kind: msgBye}.append(c.queue)
		c.sock.SetDeadline(time.Now().Add(lingerMax))
	} else {
		c.queue = nil
		c.sock.Close()
	}
	c.mu.Unlock()

	// Who has seen Done finds no pipe that still works.
	for _, s := range senders {
		s.fail(reason)
	}
	for _, r := range receivers {
		r.fail(reason)
	}
	for id, ps := range offers {
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

// spawn runs f on a goroutine that the transport awaits, unless the conn has
// ended.
func (c *conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.t.tasks.Go(f)
	}
	return !c.ended
}

// OpenPipe opens a pipe. It waits while the peer has MaxPipes of them open,
// and until the peer knows of the new one.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, false)
}

// OpenPaired implements transport.PairOpener.
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
		// The peer has just been told that there is a pipe.
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

// AcceptPipe returns the next pipe that the peer opened.
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

// addSender registers a pipe of this side; nil if the conn has ended.
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
	s := &sender{
		conn: c, id: *next | bit, opened: make(chan struct{}), done: make(chan struct{}),
		senderMigration: senderMigration{changed: make(chan struct{}, 1)},
	}
	*next += 2
	c.outgoing[s.id] = s
	return s
}

// removeSender forgets a pipe of this side, so that another can be opened.
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
	errPipeNumber = errors.New("it opens a pipe with a number that is not free")
	errTooMany    = errors.New("it opens more pipes than it was told to")
)

// addReceiver registers a pipe of the peer.
func (c *conn) addReceiver(id uint32) (*receiver, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return nil, errConnClosed
	case id%2 == 0 == c.dialed, c.incoming[id] != nil:
		return nil, errPipeNumber
	case len(c.incoming) >= c.t.cfg.MaxPipes:
		return nil, errTooMany
	}
	r := &receiver{
		conn: c, id: id, ended: make(chan struct{}), done: make(chan struct{}),
		receiverMigration: receiverMigration{attached: make(chan struct{}, 1)},
	}
	c.incoming[id] = r
	return r, nil
}

// removeReceiver forgets a pipe of the peer, and reports whether it was known.
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

// say puts a message in the queue for the peer. It blocks on nothing and may be
// called with the lock of a pipe held.
func (c *conn) send(m message) {
	c.mu.Lock()
	switch {
	case c.ended:
	case len(c.queue) > queueMax:
		c.fault = errors.New("it does not read its control socket")
		c.sock.Close() // hear ends the conn
	default:
		c.queue = m.append(c.queue)
	}
	c.mu.Unlock()
	c.wakeWriter()
}

func (c *conn) wakeWriter() {
	select {
	case c.queued <- struct{}{}:
	default:
	}
}

// speak writes the queue to the control socket until the conn has ended.
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
			if _, err := c.tls.Write(b); err != nil {
				c.end(c.controlError(err))
				return
			}
			continue
		}
		if over {
			c.sock.CloseWrite()
			return
		}
		<-c.queued
	}
}

// listen reads the control socket until it ends, and the conn with it.
func (c *conn) readMessages() {
	c.end(c.receive())
	<-c.writeDone
	c.sock.Close()
}

// hear carries out what the peer says, and returns why that has ended. What
// comes after the conn was closed here is dropped until the peer has heard
// so: to close a socket with something unread in it can take away from the
// peer what it has not read yet.
func (c *conn) receive() error {
	var buf [messageBytes]byte
	for {
		m, err := readMessage(c.tls, &buf)
		if err == nil && m.kind == msgBye {
			return errPeerClosed
		}
		if err == nil && !c.isEnded() {
			err = c.handle(m)
		}
		if err != nil {
			return c.controlError(err)
		}
	}
}

func (c *conn) handleReady() error {
	select {
	case <-c.peerReady:
		return errors.New("it says twice that it is ready")
	default:
		close(c.peerReady)
		return nil
	}
}

// broken is why the conn ends when the control socket fails.
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
		if ps := c.takeOffer(m.pipe); ps != nil {
			c.handleDecline(m.pipe, ps)
		} else if s := c.sender(m.pipe); s != nil && !c.dialed && s.abandon() {
			c.removeSender(s)
			s.open(nil, errNoSocket)
		}
	case msgMigrate:
		return c.handleMigrate(m.pipe)
	case msgEnd:
		if r := c.receiver(m.pipe); r != nil {
			return r.handleEnd(m.n)
		}
	case msgDrop:
		if s := c.sender(m.pipe); s != nil {
			c.removeSender(s)
			s.fail(errPipeAbandoned)
		}
	default:
		return fmt.Errorf("it says %#x on its control socket, which means nothing", m.kind)
	}
	return nil
}
