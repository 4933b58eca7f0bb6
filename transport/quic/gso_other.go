//go:build !linux

package quic

// segments returns false: UDP_SEGMENT is specific to Linux.
func segments(uintptr) bool { return false }
