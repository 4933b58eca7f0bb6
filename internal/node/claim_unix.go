//go:build unix

package node

import (
	"os"
	"syscall"
)

// Claim locks a file for this process, until the process closes it or ends. If another process has locked it,
// Claim returns the number of that process, and otherwise 0, also where the file cannot be locked.
func Claim(f *os.File) (holder int) {
	for {
		lock := syscall.Flock_t{Type: syscall.F_WRLCK}
		err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock)
		if err != syscall.EAGAIN && err != syscall.EACCES {
			return 0
		}
		if err := syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock); err != nil {
			return 0
		}
		if lock.Type != syscall.F_UNLCK { // otherwise the lock has ended meanwhile
			return int(lock.Pid)
		}
	}
}
