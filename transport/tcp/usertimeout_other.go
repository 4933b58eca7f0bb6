//go:build !linux

package tcp

import "time"

// limitUnanswered leaves it to the system how often it repeats what is not
// acknowledged.
func setUserTimeout(socket, time.Duration) {}
