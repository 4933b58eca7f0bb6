package tcp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// TestAbandonedPipes checks that a receiver that is closed at any moment explains the end of the socket to the writer: the conn goes on.
func TestAbandonedPipes(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		for _, n := range nodes {
			n.causeTimeout = time.Hour
		}
		dialed, accepted := connect(t, nodes[0], nodes[1])
		var all sync.WaitGroup
		for i := range 200 {
			from, to := dialed, accepted
			if i%2 == 0 {
				from, to = accepted, dialed
			}
			s, r := pipeBetween(t, from, to)
			all.Go(func() {
				var err error
				for err == nil {
					_, err = s.Write(make([]byte, 4<<10))
				}
				if !errors.Is(err, errPipeAbandoned) {
					t.Errorf("pipe %d: Write: %v, want %v", i, err, errPipeAbandoned)
				}
			})
			for range i % 4 {
				if _, err := r.ReadFunc(1000*i, func([]byte) {}); err != nil {
					t.Error(err)
				}
			}
			r.Close()
		}
		all.Wait()
		if err := errors.Join(dialed.Err(), accepted.Err()); err != nil {
			t.Errorf("the conn has ended: %v", err)
		}
	})
}

// A closedSocket calls a function when it is closed.
type closedSocket struct {
	socket
	onClose func()
}

func (k closedSocket) Close() error { k.onClose(); return nil }

// TestExplainsBeforeClosing checks that a receiver that is closed queues its message for the writer before it closes the socket.
func TestExplainsBeforeClosing(t *testing.T) {
	c := &conn{queued: make(chan struct{}, 1), incoming: make(map[uint32]*receiver)}
	r := &receiver{conn: c, id: 1, ps: new(pipeSocket), done: make(chan struct{})}
	c.incoming[r.id] = r
	closed := false
	r.flow.Store(&subflow{sock: closedSocket{onClose: func() {
		closed = true
		if want := (message{kind: msgDrop, pipe: r.id}).append(nil); !bytes.Equal(c.queue, want) {
			t.Errorf("the queue at the end of the socket: %q, want %q", c.queue, want)
		}
	}}})
	r.Close()
	if !closed {
		t.Error("the socket was not closed")
	}
}

// TestClosesConnsFirst checks that Close ends all conns, and so notifies the peers, before it closes sockets of pipes that are being opened.
func TestClosesConnsFirst(t *testing.T) {
	node := newIdleTransport()
	node.listener, node.cancel = noListener{}, func(error) {}
	node.pending.init(admission.Limits{Max: 1})
	node.conns = make(map[*conn]struct{})
	for range 100 {
		c := &conn{t: node, sock: closedSocket{socket: new(net.TCPConn)}, cancel: func(error) {}, queued: make(chan struct{}, 1), writeDone: make(chan struct{})}
		close(c.writeDone)
		node.conns[c] = struct{}{}
	}
	all := slices.Collect(maps.Keys(node.conns))
	node.pending.tickets[&closedSocket{onClose: func() {
		for _, c := range all {
			if !c.isEnded() {
				t.Error("the socket of a pipe was closed before a conn has ended")
				return
			}
		}
	}}] = nil // authenticated
	node.Close()
}

// newBrokenReceiver returns a receiver without bytes, and its conn. The peer answers no question.
func newBrokenReceiver() (*conn, *receiver) {
	node := newIdleTransport()
	node.causeTimeout = time.Hour
	c := &conn{t: node, sock: closedSocket{onClose: func() {}}, queued: make(chan struct{}, 1), incoming: make(map[uint32]*receiver)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	r := &receiver{conn: c, id: 1, done: make(chan struct{}), ended: make(chan struct{})}
	r.flow.Store(new(subflow))
	c.incoming[r.id] = r
	return c, r
}

// TestNoNeedToAsk checks that the peer is not asked about the end of a pipe that it has announced.
func TestNoNeedToAsk(t *testing.T) {
	c, r := newBrokenReceiver()
	if err := r.handleEnd(0); err != nil {
		t.Fatal(err)
	}
	if err := r.cause(io.EOF, true); err != io.EOF {
		t.Errorf("cause: %v, want EOF", err)
	}
	if c.asked > 0 {
		t.Error("the peer was asked")
	}
}

// TestAnswerDuringCheck checks that an answer that arrives while a reader checks its broken socket is not combined with the knowledge
// before it.
func TestAnswerDuringCheck(t *testing.T) {
	c, r := newBrokenReceiver()
	r.broken.begin(c, r.id, 0)
	isUnexplained := r.broken.isUnexplained(c, func() bool {
		follows := r.follows()
		if err := c.handleAnswer(message{kind: msgAnswer, pipe: r.id, n: 1}); err != nil {
			t.Error(err)
		}
		return follows
	})
	if isUnexplained {
		t.Error("the socket counts as unexplained before the answer")
	}
}

// TestFollowingSubflow checks when the reader waits for another subflow after the peer has answered.
func TestFollowingSubflow(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(r *receiver)
		newest   uint64
		ofStream bool
		ends     bool
	}{
		"nothing":                                {ends: true},
		"a subflow of the peer":                  {newest: 1},
		"a subflow that came after the answer":   {change: func(r *receiver) { r.hasNext.Store(true) }},
		"a subflow that begins after lost bytes": {change: func(r *receiver) { r.hasNext.Store(true); r.bounded = true }, newest: 1, ends: true},
		"a subflow after a bad TLS record":       {newest: 1, ofStream: true, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := newBrokenReceiver()
			if err := r.cause(io.EOF, !test.ofStream); err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(r)
			}
			if err := c.handleAnswer(message{kind: msgAnswer, pipe: r.id, n: test.newest}); err != nil {
				t.Fatal(err)
			}
			if err := r.cause(io.EOF, !test.ofStream); err != nil != test.ends {
				t.Errorf("cause: %v, want an error: %t", err, test.ends)
			}
		})
	}
}

// TestAnswerBeforeConfirmation checks that the conn goes on if a subflow breaks before the writer has its confirmation: the pipe
// migrates again.
func TestAnswerBeforeConfirmation(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	nodes[1].causeTimeout = time.Hour
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	s.mu.Lock()
	old := s.flow
	s.flow = &subflow{sock: old.sock, raw: old.raw, ps: old.ps, start: s.written}
	s.flow.unconfirmed.Store(true)
	s.mu.Unlock()
	old.sock.CloseWrite() // like a middlebox
	read := inBackground(t, "Read", func() {
		if n, err := r.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("Read: %d bytes, %v", n, err)
		}
	})
	eventually(t, "an answer", func() bool { return to.answered.Load() > 0 })
	eventually(t, "a migration", func() bool { return s.currentFlow().serial > 0 })
	if _, err := s.Write([]byte{1}); err != nil {
		t.Error(err)
	}
	read()
}

// TestWriteAfterBreak checks that a Write to a broken socket continues on the next one if the pipe is about to migrate.
func TestWriteAfterBreak(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		for _, n := range nodes {
			n.causeTimeout, n.staysLossy = time.Hour, true
		}
		from, to := connect(t, nodes[0], nodes[1])
		from.lossy.Store(true)
		s, r := pipeBetween(t, from, to)
		s.requestSpareForLong()
		r.ps.socket.(interface{ SetLinger(seconds int) error }).SetLinger(0)
		r.ps.socket.Close() // resets it
		write := inBackground(t, "Write", func() {
			for range 3 {
				if _, err := s.Write([]byte("hello")); err != nil {
					t.Errorf("Write: %v", err)
				}
			}
		})
		f, err := from.redial(s.id)
		if err != nil {
			t.Fatal(err)
		}
		from.spawn(func() { from.useFlow(s, f) })
		write()
		if n, err := r.ReadFunc(15, func([]byte) {}); n != 15 || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
}

// TestMigrationGivenUp checks that the conn ends if the socket of a pipe has ended while the pipe was about to migrate, and it does not
// migrate.
func TestMigrationGivenUp(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	nodes[1].causeTimeout = time.Hour // The answer of the peer ends the wait.
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	s.requestSpareForLong()
	s.currentFlow().sock.CloseWrite() // like a middlebox
	read := inBackground(t, "Read", func() {
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("Read: %v, want %v", err, transport.ErrPeerGone)
		}
	})
	eventually(t, "an answer", func() bool { return to.answered.Load() > 0 })
	if err := to.Err(); err != nil {
		t.Fatalf("the conn has ended although the pipe migrates: %v", err)
	}
	s.cancelSpareRequest()
	read()
	awaitEnd(t, to, transport.ErrPeerGone)
}
