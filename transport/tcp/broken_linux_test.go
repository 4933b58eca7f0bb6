package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// TestAbandonedPipes checks that a receiver that is closed at any moment explains the end of the socket to the writer: the conn goes on.
func TestAbandonedPipes(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
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
	r := &receiver{conn: c, id: 1, done: make(chan struct{})}
	c.incoming[r.id] = r
	closed := false
	r.ps = &pipeSocket{socket: closedSocket{onClose: func() {
		closed = true
		if want := (message{kind: msgDrop, pipe: r.id}).append(nil); !bytes.Equal(c.queue, want) {
			t.Errorf("the queue at the end of the socket: %q, want %q", c.queue, want)
		}
	}}}
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

// TestBrokenSocket checks that a conn ends on both sides if a socket of a pipe is reset, whichever side notices it by a blocked call, by
// polling, or by nothing but its samples, and that the reason names the pipe.
func TestBrokenSocket(t *testing.T) {
	for name, wait := range map[string]func(s *sender, r *receiver){
		"a reader": func(_ *sender, r *receiver) { r.Read(make([]byte, 1)) },
		"a writer": func(s *sender, _ *receiver) {
			for {
				if _, err := s.Write(make([]byte, 1)); err != nil {
					return
				}
			}
		},
		"a reader that polls": func(_ *sender, r *receiver) {
			can := r.Capabilities().Poller
			for {
				if _, err := can.TryRead(make([]byte, 1)); err != nil {
					return
				}
				can.WaitReadable()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, func(t *testing.T, from, to *conn) {
				t.Parallel()
				s, r := pipeBetween(t, from, to)
				s.ps.socket.(interface{ SetLinger(seconds int) error }).SetLinger(0)
				raw := s.ps.raw
				raw.Control(func(fd uintptr) { syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
				inBackground(t, name, func() { wait(s, r) })()
				awaitEnd(t, from, transport.ErrPeerGone)
				awaitEnd(t, to, transport.ErrPeerGone)
				want := fmt.Sprintf("the socket of pipe %d has failed", s.id)
				if a, b := from.Err().Error(), to.Err().Error(); !strings.Contains(a+b, want) {
					t.Errorf("the conn has ended: %s, and %s, want %q on one side", a, b, want)
				}
			})
		})
	}
}

// TestLateExplanation checks that the monitor ends the conn if and only if no message explains the end of a socket in time.
func TestLateExplanation(t *testing.T) {
	for name, test := range map[string]struct {
		announced bool
		size      uint64
		ends      bool
	}{
		"nothing":                {ends: true},
		"the end of the pipe":    {announced: true, size: 7},
		"an end with more bytes": {announced: true, size: 8, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{})
			c, _ := connect(t, nodes[0], nodes[1])
			r := &receiver{conn: c, id: 1, ended: make(chan struct{}), done: make(chan struct{}), received: 7}
			c.mu.Lock()
			c.incoming[r.id] = r
			c.mu.Unlock()
			parked(t, c.t)
			c.t.mu.Lock() // stops the monitor
			r.broken.Store(&breakage{errors.New("reset"), r.received})
			for i := range explainSamples {
				if !r.sampleBreakage() || c.Err() != nil {
					t.Fatalf("sample %d: the conn has ended: %v", i, c.Err())
				}
			}
			if test.announced {
				if err := r.handleEnd(test.size); err != nil {
					t.Fatal(err)
				}
			}
			c.t.mu.Unlock()
			if unexplained := r.sampleBreakage(); unexplained != test.ends || (c.Err() != nil) != test.ends {
				t.Errorf("unexplained: %t, the conn has ended: %v, want %t", unexplained, c.Err(), test.ends)
			}
			c.removeReceiver(r)
		})
	}
}
