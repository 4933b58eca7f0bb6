package tcp

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A locator asks the kernel by which processor a socket was served last.
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

// PeerCPU implements transport.CPULocator. Between two sockets of a machine a packet is
// received by the processor that sends it, most often that of the peer; but what the
// acknowledgement of this side has set free comes from that of this side.
func (r *receiver) PeerCPU() int {
	if r.flow.Load().raw.Control(r.locator.ask) != nil {
		return -1
	}
	return int(r.locator.cpu.Load())
}
