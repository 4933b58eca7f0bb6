package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// PeerEnded implements transport.Sharer.
func (c *conn) PeerEnded() func() bool {
	pid := c.pid
	return func() bool { return hasEnded(pid) }
}

// hasEnded reports whether a process has, even if its parent has not heard of it yet.
// It is not known of one that is in a namespace which this process does not see, or
// whose number another one has by now.
func hasEnded(pid int) bool {
	if pid <= 0 {
		return false
	}
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	state := bytes.LastIndexByte(stat, ')') + 2 // behind the name, which may be anything
	return err == nil && state < len(stat) && (stat[state] == 'Z' || stat[state] == 'X')
}
