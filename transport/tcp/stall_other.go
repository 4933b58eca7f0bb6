//go:build !linux

package tcp

import "syscall"

// queuedBytes is not known here.
func queuedBytes(syscall.RawConn) (n int, ok bool) { return 0, false }

// progress is not known here, so no pipe of this side moves.
func progress(syscall.RawConn) (p socketProgress, ok bool) { return p, false }
