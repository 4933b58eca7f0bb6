package quic

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// probeAfter is how long a dial waits for an answer before it looks whether
// anybody is there at all.
const probeAfter = 200 * time.Millisecond

// probe abandons an attempt to reach a UDP port that nobody has. QUIC would
// wait for its timeout: a host's ICMP message that refuses a packet is reported
// only to a socket that is connected, which the node's own is not. Hence a
// socket of its own, and a packet that is no QUIC packet.
func (a *attempt) probe() {
	timer := time.NewTimer(probeAfter)
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

// fail abandons the attempt if err says that remote cannot be reached.
func (a *attempt) fail(err error) {
	if refused(err) || unreachable(err) {
		a.abandon(fmt.Errorf("%w: %w", transport.ErrPeerGone, err))
	}
}
