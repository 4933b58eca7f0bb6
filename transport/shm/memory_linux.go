package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Seals of shared memory. Without them, a process that shortens the file could kill the other
// by SIGBUS.
const (
	pipeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	areaSeals = pipeSeals | unix.F_SEAL_FUTURE_WRITE
)

// newMemory creates a memfd of zeros, maps it, and seals it. The caller owns the file and the
// mapping.
func newMemory(name string, size, seals int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, nil, fmt.Errorf("memfd_create: %w", err)
	}
	mem, err = sizeMemory(fd, size, seals)
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, mem, nil
}

func sizeMemory(fd, size, seals int) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("ftruncate to %d bytes: %w", size, err)
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Munmap(mem)
		return nil, fmt.Errorf("seal memory: %w", err)
	}
	return mem, nil
}

// A memoryError reports that the system has no memory for mapped pages.
type memoryError struct {
	bytes int
	err   error
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("the system has no memory for %d bytes of shared memory (%v): raise the memory limit (cgroup, vm.overcommit_memory), "+
		"run fewer ranks on this host, or leave \"shm\" out of NEXAR_TRANSPORTS", e.bytes, e.err)
}

func (e *memoryError) Unwrap() error { return e.err }

// reserveMemory reserves memory for b, which begins on a page. Otherwise the pages of a memfd
// get memory at the first access, which raises SIGBUS if none is left, as under strict
// overcommit. Before Linux 5.14 reserveMemory does nothing.
func reserveMemory(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	switch err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); {
	case err == nil || errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.EFAULT): // an access would raise SIGBUS
		return &memoryError{len(b), unix.ENOMEM}
	default:
		return &memoryError{len(b), err}
	}
}

// mapMemory maps a file of a peer, which must have this size and these seals. The caller
// still owns the file.
func mapMemory(fd, size, seals, protection int) ([]byte, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("the file of the peer is not a memfd: %w", err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("the memory of the peer has the seals %#x, want %#x", got, seals)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("fstat of the peer's memory: %w", err)
	}
	if stat.Size != int64(size) {
		return nil, fmt.Errorf("the memory of the peer has %d bytes, want %d", stat.Size, size)
	}
	mem, err := unix.Mmap(fd, 0, size, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes of the peer: %w", size, err)
	}
	return mem, nil
}
