package tcp

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// queuedBytes is how many bytes of a socket have not been acknowledged, sent or not.
func queuedBytes(raw syscall.RawConn) (n int, ok bool) {
	if raw == nil {
		return 0, false
	}
	err := raw.Control(func(fd uintptr) {
		var err error
		n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		ok = err == nil
	})
	return n, ok && err == nil
}

// stateLoss is TCP_CA_Loss of linux/tcp.h.
const stateLoss = 4

// progress asks the kernel how far the bytes written to a socket have come.
func progress(raw syscall.RawConn) (p socketProgress, ok bool) {
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if ok = err == nil; ok {
			p = socketProgress{
				inFlight: info.Unacked > 0, repairs: info.Ca_state == stateLoss,
				acked: info.Bytes_acked, retransmitted: info.Total_retrans,
				trip: time.Duration(info.Min_rtt) * time.Microsecond,
			}
		}
	})
	return p, ok && err == nil
}
