//go:build unix

package transport

import "syscall"

// filesMax is how many files this process may have open.
func filesMax() (uint64, bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil
}
