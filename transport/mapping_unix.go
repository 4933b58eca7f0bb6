//go:build unix

package transport

import (
	"fmt"
	"os"
	"syscall"
)

func mapMemory(n int) ([]byte, error) {
	page := os.Getpagesize()
	b, err := syscall.Mmap(-1, 0, (n+page-1)/page*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("transport: map %d bytes: %w", n, err)
	}
	return b, nil
}

func unmapMemory(b []byte) { _ = syscall.Munmap(b) }
