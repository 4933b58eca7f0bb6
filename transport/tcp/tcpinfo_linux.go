package tcp

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stateClose = 7 // TCP_CLOSE of linux/tcp_states.h

	// roundTripsMin is the number of round trips after which the handshake, which takes a second longer for each lost packet, no longer
	// counts in the smoothed one. Each acknowledgement is one, of any number of segments.
	roundTripsMin = 32
)

// sampleSocket asks the kernel for the state of a socket. Before Linux 5.4, which does not report the window of the peer, none stalls.
func sampleSocket(raw syscall.RawConn) (p sample, ok bool) {
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return
		}
		queued, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		ok = err == nil
		rtt, young := info.Rtt, min(info.Delivered, info.Segs_in) < roundTripsMin
		if young {
			rtt = info.Min_rtt
		}
		p = sample{
			ended: info.State == stateClose, queued: queued, acked: info.Bytes_acked,
			// The kernel sends no part of a segment into the rest of a window.
			windowed:  info.Snd_wnd == 0 || info.Unacked == 0 && info.Snd_wnd < info.Snd_mss,
			smoothRTT: time.Duration(rtt) * time.Microsecond, young: young, probe: time.Duration(info.Rto) * time.Microsecond,
		}
	})
	return p, ok && err == nil
}
