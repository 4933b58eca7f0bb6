package shm

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

var _ transport.Puller = (*conn)(nil)

// A secret lies in the memory of this process. A peer that is told what it is,
// and where, finds out whether it can read that memory, and the right one: the
// system may forbid it (ptrace(2), Yama, seccomp), and where processes have
// numbers of their own (pid_namespaces(7)), a number may be that of another.
type secret [8]byte

func newSecret() *secret {
	s := new(secret)
	rand.Read(s[:])
	return s
}

func (s *secret) tell() (value, at uint64) {
	return binary.NativeEndian.Uint64(s[:]), uint64(uintptr(unsafe.Pointer(s)))
}

// canPull reports whether the memory of a process can be read.
func canPull(pid int32, value, at uint64) bool {
	var got secret
	err := pull(pid, got[:], at)
	return err == nil && binary.NativeEndian.Uint64(got[:]) == value
}

// pull copies from the memory of a process.
func pull(pid int32, dst []byte, addr uint64) error { return pullTwo(pid, dst, addr, nil, 0) }

// pullTwo copies from two places in the memory of a process, one after the
// other. The system does so in this order.
func pullTwo(pid int32, dst []byte, addr uint64, then []byte, thenAddr uint64) error {
	for len(dst) > 0 || len(then) > 0 {
		if len(dst) == 0 {
			dst, addr, then = then, thenAddr, nil
		}
		local := [2]unix.Iovec{{Base: &dst[0]}, {Base: unsafe.SliceData(then)}}
		local[0].SetLen(len(dst))
		local[1].SetLen(len(then))
		remote := [2]unix.RemoteIovec{{Base: uintptr(addr), Len: len(dst)}, {Base: uintptr(thenAddr), Len: len(then)}}
		n, err := unix.ProcessVMReadv(int(pid), local[:], remote[:], 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("shm: read the memory of process %d: %w", pid, err)
		case n == 0:
			return fmt.Errorf("shm: read the memory of process %d: %w", pid, io.ErrUnexpectedEOF)
		default:
			k := min(n, len(dst))
			dst, addr = dst[k:], addr+uint64(k)
			then, thenAddr = then[n-k:], thenAddr+uint64(n-k)
		}
	}
	return nil
}

// Pulls implements transport.Puller.
func (c *conn) Pulls() bool { return c.open }

// Pull implements transport.Puller. Once the peer has ended, its number may
// come to be that of another process; but numbers are given in turn, and the
// conn ends within milliseconds.
func (c *conn) Pull(dst []byte, addr uint64) error {
	if err := c.Err(); err != nil {
		return err
	}
	return pull(c.pid, dst, addr)
}

// PullMarked implements transport.Puller.
func (c *conn) PullMarked(dst []byte, addr uint64, mark []byte, markAddr uint64) error {
	if err := c.Err(); err != nil {
		return err
	}
	return pullTwo(c.pid, dst, addr, mark, markAddr)
}
