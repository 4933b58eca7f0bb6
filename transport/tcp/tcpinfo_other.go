//go:build !linux

package tcp

import "syscall"

// queuedBytes is only implemented on Linux.
func queuedBytes(syscall.RawConn) (n int, ok bool) { return 0, false }

// sampleSocket is only implemented on Linux. Elsewhere senders do not migrate.
func sampleSocket(syscall.RawConn) (p sample, ok bool) { return p, false }
