package node

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
)

const (
	// heldFor is the time for which a process that lives holds a connection without a hello.
	heldFor = 200 * time.Millisecond
	// endedPause is the pause before the second attempt after a connection was cut. Each further one is twice as long.
	endedPause = 5 * time.Millisecond
)

// nodeEnded reports whether the process of a node has ended: its host refuses connections at the port at which the node listened.
// Without an answer it reports false.
func (s *sockets) nodeEnded(ctx context.Context, node membership.Node) bool {
	_, overTCP := node.Endpoint(tcpName)
	_, overQUIC := node.Endpoint(quicName) // It has a TCP port as well, see package quic.
	ask := s.asksHosts()
	return (overTCP || overQUIC) && ask != nil && ask(ctx, node.Addr())
}

// processEnded reports whether the host at an address refuses connections. A process that is ending may still accept one and cut it, so
// processEnded tries again then.
func (s *sockets) processEnded(ctx context.Context, addr string) bool {
	for pause := endedPause; ; pause *= 2 {
		ended, cut := askPort(ctx, addr)
		if ended || !cut || !handshake.Sleep(ctx, pause) {
			return ended
		}
	}
}

// asksHosts returns processEnded, or nil if no address of this process is one of TCP.
func (s *sockets) asksHosts() func(ctx context.Context, addr string) bool {
	if s.addr == "" || s.replaced {
		return nil
	}
	return s.processEnded
}

// askPort reports whether nothing listens at an address, or whether the process there has cut the connection.
func askPort(ctx context.Context, addr string) (refused, cut bool) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED), false
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(heldFor))
	_, err = conn.Read(make([]byte, 1))
	return false, err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}
