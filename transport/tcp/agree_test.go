package tcp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

// A deafListener accepts sockets that, while it is deaf, lose the confirmation of the
// peer, the last byte of a handshake.
type deafListener struct {
	net.Listener
	deaf  atomic.Bool
	words chan struct{} // signals each lost confirmation
}

type deafSocket struct {
	*net.TCPConn
	l *deafListener
}

func (l *deafListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return deafSocket{c.(*net.TCPConn), l}, nil
}

func (s deafSocket) Read(p []byte) (int, error) {
	if len(p) == 1 && s.l.deaf.Load() {
		s.l.words <- struct{}{}
		return 0, errors.New("not heard")
	}
	return s.TCPConn.Read(p)
}

// TestHalfOpenPipe checks that a pipe that only one side counts as open ends with its conn.
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
				if !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("the opener writes: %v, want %v", err, transport.ErrPeerGone)
				}
			} else if err == nil {
				t.Error("a pipe was opened without a confirmation of the peer")
			} else if r, err := other.AcceptPipe(t.Context()); err == nil {
				if n, err := r.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Errorf("read %d bytes, %v from a pipe that the other side does not have", n, err)
				}
			}
			awaitEnd(t, dialed, transport.ErrPeerGone)
			awaitEnd(t, accepted, transport.ErrPeerGone)
		})
	}
}
