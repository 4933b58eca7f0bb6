package tcp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A deafListener accepts sockets that, while it is deaf, lose the confirmation of the
// peer, the last byte of a handshake.
type deafListener struct {
	net.Listener
	deaf  atomic.Bool
	words chan struct{} // signals each lost confirmation
	stuck atomic.Int32  // number of next sockets that receive nothing
}

type deafSocket struct {
	*net.TCPConn
	l     *deafListener
	stuck bool
}

func (l *deafListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return deafSocket{c.(*net.TCPConn), l, l.stuck.Add(-1) >= 0}, nil
}

func (s deafSocket) Read(p []byte) (int, error) {
	for s.stuck {
		if _, err := s.TCPConn.Read(p); err != nil {
			return 0, err
		}
	}
	if len(p) == 1 && s.l.deaf.Load() {
		s.l.words <- struct{}{}
		return 0, errors.New("not heard")
	}
	return s.TCPConn.Read(p)
}

// TestHalfOpenPipe checks that a pipe that only one side counts as open ends without
// ending the conn.
func TestHalfOpenPipe(t *testing.T) {
	for _, dialer := range []bool{true, false} {
		t.Run(fmt.Sprintf("opened by the dialer: %t", dialer), func(t *testing.T) {
			ca := newTestCA(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			deaf := &deafListener{Listener: l, words: make(chan struct{}, 10)}
			server := newTestNode(t, Config{Listener: deaf, Plain: true}, ca.node(t, "server"))
			client := newTestNode(t, Config{Addr: "127.0.0.1:0", Plain: true}, ca.node(t, "client"))
			server.causeTimeout, client.causeTimeout = 300*time.Millisecond, 300*time.Millisecond
			dialed, accepted := connect(t, client, server)
			opener, other := dialed, accepted
			if !dialer {
				opener, other = accepted, dialed
			}
			pipeBetween(t, opener, other)

			deaf.deaf.Store(true)
			s, err := opener.OpenPipe(t.Context())
			<-deaf.words // OpenPipe does not wait for it
			deaf.deaf.Store(false)
			if dialer {
				if err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = s.Write(make([]byte, 1<<20))
				}
				if !errors.Is(err, transport.ErrPeerClosed) {
					t.Errorf("the opener writes: %v, want errPipeAbandoned", err)
				}
			} else if err == nil {
				t.Error("a pipe was opened without a confirmation of the peer")
			} else if r, err := other.AcceptPipe(t.Context()); err == nil {
				if n, err := r.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Errorf("read %d bytes, %v from a pipe that the other side does not have", n, err)
				}
			}
			time.Sleep(2 * client.causeTimeout)
			if err := errors.Join(dialed.Err(), accepted.Err()); err != nil {
				t.Fatalf("the conn has ended: %v", err)
			}
			pipeBetween(t, opener, other)
		})
	}
}

// TestStuckSocket checks that a socket is replaced if its packets are lost during the
// handshake.
func TestStuckSocket(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second // the third socket is dialed after 3/10 of it
	for _, plain := range []bool{true, false} {
		for _, dialer := range []bool{true, false} {
			t.Run(fmt.Sprintf("plain: %t, opened by the dialer: %t", plain, dialer), func(t *testing.T) {
				t.Parallel()
				ca := newTestCA(t)
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				deaf := &deafListener{Listener: l}
				server := newTestNode(t, Config{Listener: deaf, Plain: plain, HandshakeTimeout: timeout}, ca.node(t, "server"))
				client := newTestNode(t, Config{Addr: "127.0.0.1:0", Plain: plain, HandshakeTimeout: timeout}, ca.node(t, "client"))
				opener, other := connect(t, client, server)
				if !dialer {
					opener, other = other, opener
				}
				deaf.stuck.Store(2)
				pipeBetween(t, opener, other)
				if deaf.stuck.Load() >= 0 {
					t.Error("no socket was stuck")
				}
				if err := errors.Join(opener.Err(), other.Err()); err != nil {
					t.Errorf("the conn has ended: %v", err)
				}
			})
		}
	}
}
