package raftlog

import (
	"os"
	"syscall"
)

// syncData syncs the data of a file, without metadata such as times.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err == syscall.EINTR {
			continue
		}
		return os.NewSyscallError("fdatasync", err)
	}
}
