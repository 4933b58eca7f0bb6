//go:build unix

package quic

import "syscall"

const errnoRefused = syscall.ECONNREFUSED

// A firewall's verdict is EPERM; a full queue of the device is ENOBUFS.
var errnosDropped = [...]syscall.Errno{syscall.EPERM, syscall.ENOBUFS}

var errnosUnreachable = [...]syscall.Errno{
	syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN,
	syscall.EADDRNOTAVAIL, syscall.ECONNREFUSED, syscall.EACCES,
}
