//go:build !linux

package tcp

import "syscall"

// sampleSocket is only implemented on Linux. Elsewhere no socket stalls.
func sampleSocket(syscall.RawConn) (p sample, ok bool) { return p, false }
