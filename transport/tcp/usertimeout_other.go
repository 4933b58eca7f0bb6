//go:build !linux

package tcp

import "time"

// setUserTimeout leaves retransmissions to the default of the system.
func setUserTimeout(socket, time.Duration) {}
