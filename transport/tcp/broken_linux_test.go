package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// TestAbandonedPipes checks that a receiver may be closed at any moment: the writer learns that its pipe is not read, and the conn goes on.
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

// TestHeardBeforeClosing checks that a side closes or ends the socket of a pipe that has ended there only after the peer has heard of it.
func TestHeardBeforeClosing(t *testing.T) {
	c := &conn{t: newIdleTransport(), queued: make(chan struct{}, 1), incoming: make(map[uint32]*receiver), outgoing: make(map[uint32]*sender), retired: make(map[uint32]*pipeSocket)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for kind, end := range map[byte]func(ps *pipeSocket){
		msgDrop: func(ps *pipeSocket) {
			r := &receiver{conn: c, id: 1, ps: ps, done: make(chan struct{})}
			c.incoming[r.id] = r
			r.Close()
		},
		msgEnd: func(ps *pipeSocket) {
			s := &sender{conn: c, id: 2, ps: ps}
			c.outgoing[s.id] = s
			s.Close()
		},
	} {
		here, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer here.Close()
		there, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer there.Close()
		c.queue = nil
		end(&pipeSocket{socket: here.(*net.TCPConn), dirs: directions{users: 1}})
		if len(c.queue) != messageBytes || c.queue[0] != kind {
			t.Errorf("the queue: %q, want a message %q", c.queue, kind)
		}
		there.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := there.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("message %q: the socket has ended before the peer has heard of it: %v", kind, err)
		}
		id := binary.BigEndian.Uint32(c.queue[1:])
		if err := c.handle(message{kind: msgHeard, pipe: id}); err != nil {
			t.Fatal(err)
		}
		there.SetReadDeadline(time.Now().Add(soon))
		if _, err := there.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("message %q: the peer has heard of it, and the socket has not ended: %v", kind, err)
		}
	}
}

// TestEndedPipes checks that pipes that are ended while their reader waits end with io.EOF, and the conn goes on.
func TestEndedPipes(t *testing.T) {
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
				if n, err := io.Copy(io.Discard, r); n != int64(i) || err != nil {
					t.Errorf("pipe %d: read %d bytes, %v", i, n, err)
				}
			})
			s.Write(make([]byte, i))
			s.Close()
		}
		all.Wait()
		if err := errors.Join(dialed.Err(), accepted.Err()); err != nil {
			t.Errorf("the conn has ended: %v", err)
		}
	})
}

// TestClosedConn checks that a conn that the peer has closed ends with that reason, though the sockets of its pipes end at the same time.
func TestClosedConn(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		nodes := newTestNodes(t, 2, cfg)
		for range 50 {
			a, b := connect(t, nodes[0], nodes[1])
			_, r := pipeBetween(t, a, b)
			s, _ := pipeBetween(t, b, a)
			var both sync.WaitGroup
			both.Go(func() {
				if _, err := r.Read(make([]byte, 1)); !errors.Is(err, transport.ErrPeerClosed) {
					t.Errorf("Read: %v, want %v", err, transport.ErrPeerClosed)
				}
			})
			both.Go(func() {
				var err error
				for err == nil {
					_, err = s.Write(make([]byte, 1<<10))
				}
				if !errors.Is(err, transport.ErrPeerClosed) {
					t.Errorf("Write: %v, want %v", err, transport.ErrPeerClosed)
				}
			})
			a.Close()
			both.Wait()
		}
	})
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
