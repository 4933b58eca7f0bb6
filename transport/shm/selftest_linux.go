package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/deadline"

	"golang.org/x/sys/unix"
)

// selfTest implements Supported.
func selfTest() error {
	if err := errors.Join(testMemory(), testHandshake()); err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	return nil
}

// testMemory maps memory twice, as two processes would, and waits on a futex in it.
func testMemory() error {
	page := os.Getpagesize()
	fd, own, err := newMemory("nexar-selftest", page, areaSeals)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	defer unix.Munmap(own)
	peer, err := mapMemory(fd, page, areaSeals, unix.PROT_READ)
	if err != nil {
		return err
	}
	defer unix.Munmap(peer)

	word := (*atomic.Uint32)(unsafe.Pointer(&own[0]))
	same := (*atomic.Uint32)(unsafe.Pointer(&peer[0]))
	word.Store(1)
	if same.Load() != 1 {
		return errors.New("two mappings of the same memory differ")
	}
	if err := futexWait(same, 0, time.Second); !errors.Is(err, unix.EAGAIN) {
		return fmt.Errorf("futex wait for a value that has changed: %w", err)
	}
	if err := futexWait(same, 1, time.Millisecond); !errors.Is(err, unix.ETIMEDOUT) {
		return fmt.Errorf("futex wait that times out: %w", err)
	}
	_, err = futexWake(same)
	return err
}

// testHandshake connects two nodes of this process and sends bytes through a pipe.
func testHandshake() error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline.Handshake)
	defer cancel()
	cluster := "self-test " + rand.Text()
	a, err := New(Config{Cluster: cluster, Node: "a"})
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := New(Config{Cluster: cluster, Node: "b"})
	if err != nil {
		return err
	}
	defer b.Close()
	dialed, err := a.Dial(ctx, "b", "b")
	if err != nil {
		return err
	}
	accepted, err := b.Accept(ctx)
	if err != nil {
		return err
	}
	s, err := dialed.OpenPipe(ctx)
	if err != nil {
		return err
	}
	r, err := accepted.AcceptPipe(ctx)
	if err != nil {
		return err
	}
	if _, err := s.Write([]byte("hello")); err != nil {
		return err
	}
	var got [5]byte
	if _, err := io.ReadFull(r, got[:]); err != nil {
		return err
	}
	if string(got[:]) != "hello" {
		return fmt.Errorf("a pipe delivers %q, want %q", got[:], "hello")
	}
	return nil
}
