//go:build unix

package transport

import "syscall"

// maxFiles returns the number of files that this process may have open.
func maxFiles() (uint64, bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil
}
