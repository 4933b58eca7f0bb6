//go:build linux || darwin || freebsd

package meet

import (
	"os"
	"syscall"
)

// lockDir locks a directory of this user as long as it is open, or until this process ends. It returns nil if the directory cannot be locked, or,
// unless it waits, is locked by another process.
func lockDir(path string, waits bool) *os.File {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	how := syscall.LOCK_EX
	if !waits {
		how |= syscall.LOCK_NB
	}
	var stat syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &stat) != nil || int(stat.Uid) != os.Geteuid() || syscall.Flock(int(f.Fd()), how) != nil {
		f.Close()
		return nil
	}
	return f
}
