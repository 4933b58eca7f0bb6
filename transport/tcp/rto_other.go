//go:build !linux

package tcp

// setTimeouts does nothing: its options are those of Linux.
func (*Transport) setTimeouts(socket) {}
