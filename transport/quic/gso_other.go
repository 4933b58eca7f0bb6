//go:build !linux

package quic

// segments is about a feature of Linux.
func segments(uintptr) bool { return false }
