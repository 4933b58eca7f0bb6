package tcp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// A breakingListener resets the next sockets that it accepts.
type breakingListener struct {
	net.Listener
	breaks *atomic.Int64 // number of sockets
}

func (l breakingListener) Accept() (net.Conn, error) {
	for {
		sock, err := l.Listener.Accept()
		if err != nil || l.breaks.Add(-1) < 0 {
			return sock, err
		}
		admission.Reset(sock)
	}
}

// TestBrokenHandshake checks that a pipe opens although the network breaks sockets that are dialed for it, and that the conn
// does not end if it breaks all of them.
func TestBrokenHandshake(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		var breaks atomic.Int64
		ca := newTestCA(t)
		nodes := make([]*testNode, 2)
		for i := range nodes {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			cfg := cfg
			cfg.Listener = breakingListener{l, &breaks}
			nodes[i] = newTestNode(t, cfg, ca.node(t, fmt.Sprint("n", i)))
		}
		dialed, accepted := connect(t, nodes[0], nodes[1])
		for _, ends := range [][2]*conn{{dialed, accepted}, {accepted, dialed}} {
			breaks.Store(handshakesMax - 1)
			pipeBetween(t, ends[0], ends[1])
			breaks.Store(handshakesMax)
			if _, err := ends[0].OpenPipe(t.Context()); !errors.Is(err, transport.ErrPeerGone) && !errors.Is(err, errNoSocket) {
				t.Errorf("OpenPipe: %v, want ErrPeerGone or that the peer could not dial", err)
			}
		}
		if err := errors.Join(dialed.Err(), accepted.Err()); err != nil {
			t.Errorf("the conn has ended: %v", err)
		}
	})
}
