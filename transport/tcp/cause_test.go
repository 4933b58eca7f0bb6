package tcp

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

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

// TestMigrationGivenUp checks that the conn ends if the socket of a pipe has ended while the pipe was about to migrate, and it does not
// migrate.
func TestMigrationGivenUp(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	nodes[1].causeTimeout = time.Hour // The answer of the peer ends the wait.
	from, to := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, from, to)
	s.requestSpare()
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
