package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Seals of memory that is given to a peer. Whoever maps a file that another
// process can shorten is killed by SIGBUS when that happens.
const (
	pipeSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	areaSeals = pipeSeals | unix.F_SEAL_FUTURE_WRITE
)

// newMemory makes a file of zeros that exists in memory alone, maps it, and
// then seals it. The caller owns both the file and the mapping.
func newMemory(name string, size, seals int) (fd int, mem []byte, err error) {
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, nil, fmt.Errorf("memfd_create: %w", err)
	}
	mem, err = fillMemory(fd, size, seals)
	if err != nil {
		unix.Close(fd)
		return -1, nil, err
	}
	return fd, mem, nil
}

func fillMemory(fd, size, seals int) ([]byte, error) {
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

// A memoryError says that the system has no memory for pages that were mapped.
type memoryError struct {
	bytes int
	err   error
}

func (e *memoryError) Error() string {
	return fmt.Sprintf("the system has no memory for %d bytes that are shared (%v): raise the limit of memory (cgroup, vm.overcommit_memory), "+
		"run fewer ranks on this host, or leave \"shm\" out of NEXAR_TRANSPORTS", e.bytes, e.err)
}

func (e *memoryError) Unwrap() error { return e.err }

// reserveMemory has the system provide memory for b, which begins a page. A file in
// memory has none until its pages are touched, and touching them raises SIGBUS where
// there is no memory left, as under strict overcommit. Before Linux 5.14 memory cannot
// be reserved so, and reserveMemory does nothing.
func reserveMemory(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	switch err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); {
	case err == nil || errors.Is(err, unix.EINVAL):
		return nil
	case errors.Is(err, unix.EFAULT): // where touching the memory raises SIGBUS
		return &memoryError{len(b), unix.ENOMEM}
	default:
		return &memoryError{len(b), err}
	}
}

// mapMemory maps a file of a peer, which must have this size and these seals.
// The file remains the caller's.
func mapMemory(fd, size, seals, protection int) ([]byte, error) {
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("what the peer sent is no memory that can be sealed: %w", err)
	}
	if got&seals != seals {
		return nil, fmt.Errorf("the memory of the peer has the seals %#x, want %#x", got, seals)
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("fstat of the peer's memory: %w", err)
	}
	if stat.Size != int64(size) {
		return nil, fmt.Errorf("the memory of the peer has %d bytes, not %d as it says", stat.Size, size)
	}
	mem, err := unix.Mmap(fd, 0, size, protection, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap of %d bytes of the peer: %w", size, err)
	}
	return mem, nil
}
