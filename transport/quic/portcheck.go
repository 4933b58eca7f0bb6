package quic

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// portCheckAfter is the time without an answer after which a dial checks whether the port is
// open.
const portCheckAfter = 200 * time.Millisecond

// checkPort abandons an attempt to reach a closed UDP port. QUIC would wait for its timeout: the
// system reports an ICMP refusal only to a connected socket, and the socket of the node is not
// connected. So checkPort uses a separate socket, and a packet that is not QUIC.
func (a *attempt) checkPort() {
	timer := time.NewTimer(portCheckAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.ctx.Done():
		return
	}
	sock, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(a.remote))
	if err != nil {
		a.fail(err)
		return
	}
	defer sock.Close()
	defer context.AfterFunc(a.ctx, func() { sock.Close() })()
	if _, err = sock.Write([]byte{0}); err == nil {
		_, err = sock.Read(make([]byte, 1))
	}
	a.fail(err)
}

// fail abandons the attempt if err means that remote is unreachable.
func (a *attempt) fail(err error) {
	if refused(err) || unreachable(err) {
		a.abandon(fmt.Errorf("%w: %w", transport.ErrPeerGone, err))
	}
}
