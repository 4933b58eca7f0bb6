//go:build !linux

package quic

// segments returns false: UDP_SEGMENT is specific to Linux.
func segments(int) bool { return false }
