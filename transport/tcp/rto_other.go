//go:build !linux

package tcp

// tune does nothing: the options that it sets are those of Linux.
func (*Transport) setTimeouts(socket) {}
