package tcp

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// queuedBytes returns the number of unacknowledged bytes of a socket, sent or not.
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

const (
	stateLoss  = 4 // TCP_CA_Loss of linux/tcp.h
	stateClose = 7 // TCP_CLOSE of linux/tcp_states.h
)

// sampleSocket asks the kernel for the state of a socket.
func sampleSocket(raw syscall.RawConn) (p sample, ok bool) {
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if ok = err == nil; ok {
			p = sample{
				ended:    info.State == stateClose,
				inFlight: info.Unacked > 0, unsent: info.Notsent_bytes > 0, timedOut: info.Ca_state == stateLoss, acked: info.Bytes_acked,
				minRTT: time.Duration(info.Min_rtt) * time.Microsecond, rtt: time.Duration(info.Rtt) * time.Microsecond,
				silent:   time.Duration(info.Last_ack_recv) * time.Millisecond,
				segments: segmentCounts{info.Data_segs_out, info.Total_retrans, info.Dsack_dups},
			}
		}
	})
	return p, ok && err == nil
}
