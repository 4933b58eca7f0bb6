//go:build unix

package transport

import "syscall"

// MaxFiles returns the number of files that this process may have open, or 0 if it is not known.
func MaxFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
