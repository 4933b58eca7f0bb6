//go:build darwin || freebsd || linux

package quic

import (
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/ipv4"
)

// A batchReader reads several packets per system call.
type batchReader struct {
	packets *ipv4.PacketConn
	used    time.Time // when the last packet of a connection arrived
}

func newBatchReader(udp *net.UDPConn) batchReader {
	return batchReader{packets: ipv4.NewPacketConn(udp)}
}

const (
	// floodPause is the pause of ReadBatch after a batch without a packet for quic-go. A
	// flood then costs a system call for many packets, instead of one for each.
	floodPause = 500 * time.Microsecond
	// inUse is the time without pauses of ReadBatch after a packet of a connection,
	// so that active connections are not delayed.
	inUse = 5 * time.Millisecond
)

// ReadBatch is called by quic-go to read packets. It returns without an error only if it has a
// packet for quic-go.
func (s *socket) ReadBatch(messages []ipv4.Message, flags int) (int, error) {
	for {
		n, err := s.batch.packets.ReadBatch(messages, flags)
		if err != nil {
			return n, err
		}
		kept, used := false, false
		for i := range messages[:n] {
			switch s.receive(&messages[i]) {
			case initialAdmitted:
				kept, used = true, true
			case initialAnswered:
				kept = true
			default:
				drop(&messages[i])
			}
		}
		now := time.Now()
		if used {
			s.batch.used = now
		}
		if kept {
			return n, nil
		}
		if now.Sub(s.batch.used) > inUse {
			time.Sleep(floodPause)
		}
	}
}

// drop makes a packet so short that quic-go drops it, and restores its buffer.
func drop(m *ipv4.Message) {
	m.Buffers[0][0] = 0xc0 // a long header and nothing else
	m.N = 1
}

// receive decides about a packet.
func (s *socket) receive(m *ipv4.Message) initialAction {
	p := m.Buffers[0][:m.N]
	from, ok := m.Addr.(*net.UDPAddr)
	if !ok || len(p) == 0 || p[0]&longHeader == 0 {
		return initialAdmitted
	}
	addr, _ := netip.AddrFromSlice(from.IP)
	return s.initials.inspect(p, addr.Unmap())
}
