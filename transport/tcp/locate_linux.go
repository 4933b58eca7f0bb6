package tcp

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A locator asks the kernel which processor has last processed a packet of a socket.
type locator struct {
	ask func(fd uintptr)
	cpu atomic.Int32
}

func (k *locator) init() {
	k.ask = func(fd uintptr) {
		n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
		if err != nil {
			n = -1
		}
		k.cpu.Store(int32(n))
	}
}

// PeerCPU implements [transport.CPULocator]. Within a host a packet is received on the
// processor that sent it, most often that of the peer. Packets that an acknowledgement of
// this side has released are received on the processor of this side.
func (r *receiver) PeerCPU() int {
	if r.ps.raw.Control(r.locator.ask) != nil {
		return -1
	}
	return int(r.locator.cpu.Load())
}
