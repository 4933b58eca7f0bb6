//go:build unix && !linux

package resources

import "golang.org/x/sys/unix"

// read reads the limits of this process that this system tells.
func read(string) limits {
	l := limits{files: unlimited, userThreads: unlimited, pids: unlimited, memory: unlimited}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		l.files = uint64(limit.Max)
	}
	return l
}
