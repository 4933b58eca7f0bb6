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

// A deafListener accepts sockets on which the last word of a handshake, a yes of a
// byte, is not heard while it is deaf.
type deafListener struct {
	net.Listener
	deaf  atomic.Bool
	words chan struct{} // gets something for each that was not heard
	stuck atomic.Int32  // so many sockets that come next hear nothing at all
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

// TestHalfOpenPipe: a pipe that one side counts as open and the other does not ends
// alone, whoever has opened it.
func TestHalfOpenPipe(t *testing.T) {
	for _, dialer := range []bool{true, false} {
		t.Run(fmt.Sprintf("opened by who dials: %t", dialer), func(t *testing.T) {
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
			<-deaf.words // which who has opened it need not wait for
			deaf.deaf.Store(false)
			if dialer {
				if err != nil {
					t.Fatal(err)
				}
				for err == nil {
					_, err = s.Write(make([]byte, 1<<20))
				}
				if !errors.Is(err, transport.ErrPeerClosed) {
					t.Errorf("who has opened it writes: %v, want that it is not read", err)
				}
			} else if err == nil {
				t.Error("a pipe was opened without a word of the other side")
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

// TestStuckSocket: a socket of a pipe that comes to nothing, as its packets are lost, is
// given up for another one.
func TestStuckSocket(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{true, false} {
		for _, dialer := range []bool{true, false} {
			t.Run(fmt.Sprintf("plain: %t, opened by who dials: %t", plain, dialer), func(t *testing.T) {
				t.Parallel()
				ca := newTestCA(t)
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				deaf := &deafListener{Listener: l}
				server := newTestNode(t, Config{Listener: deaf, Plain: plain}, ca.node(t, "server"))
				client := newTestNode(t, Config{Addr: "127.0.0.1:0", Plain: plain}, ca.node(t, "client"))
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
