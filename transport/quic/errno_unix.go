//go:build unix

package quic

import "syscall"

const errnoRefused = syscall.ECONNREFUSED

// EPERM is the error for a packet that a firewall drops, ENOBUFS for a full queue of the
// device.
var errnosDropped = [...]syscall.Errno{syscall.EPERM, syscall.ENOBUFS}

// EINVAL is the error of Linux for an address behind a blackhole route.
var errnosUnreachable = [...]syscall.Errno{
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN,
	syscall.EADDRNOTAVAIL, syscall.ECONNREFUSED, syscall.EACCES, syscall.EINVAL,
}
