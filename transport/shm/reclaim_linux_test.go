package shm

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/ntstore"
)

// pages returns the number of pages of a ring that have memory, and of all pages.
func pages(tb testing.TB, r *ring) (some, all int) {
	tb.Helper()
	all = len(r.data) / os.Getpagesize()
	in := make([]byte, all)
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&r.data[0])), uintptr(len(r.data)), uintptr(unsafe.Pointer(&in[0]))); errno != 0 {
		tb.Fatal(errno)
	}
	for _, b := range in {
		some += int(b & 1)
	}
	return some, all
}

func wantPages(tb testing.TB, r *ring, want int) {
	tb.Helper()
	if some, all := pages(tb, r); some != want {
		tb.Errorf("%d of %d pages have memory, want %d", some, all, want)
	}
}

// pass sends bytes through a pipe.
func pass(tb testing.TB, s *sender, r *receiver, n int) {
	tb.Helper()
	want := make([]byte, n)
	for i := range want {
		want[i] = byte(rand.Int())
	}
	go s.Write(want)
	got := make([]byte, n)
	if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
		tb.Fatalf("%d bytes: %v, or others", n, err)
	}
}

// TestReclaim: a ring has one page before it is used, all of them under traffic, and one when
// it is idle. Unread bytes are kept.
func TestReclaim(t *testing.T) {
	a, b := newPair(t, Config{})
	a.endpoint.reclaimer.every = time.Hour
	s, r := newPipe(t, a, b)
	_, all := pages(t, &s.ring.ring)
	for range 3 {
		wantPages(t, &s.ring.ring, 1)
		for some := 0; some < fillAfter; some += 15_000 {
			pass(t, s, r, 15_000)
		}
		pass(t, s, r, 10)
		wantPages(t, &s.ring.ring, all)
		if !s.reclaim() {
			t.Error("the memory of a ring in use was reclaimed")
		}
		pass(t, s, r, 10)
		if s.reclaim() {
			t.Error("the memory of an idle ring was not reclaimed")
		}
		wantPages(t, &s.ring.ring, 1)
	}
	pass(t, s, r, fillAfter)
	s.Write([]byte("not read"))
	for range 3 {
		if !s.reclaim() {
			t.Error("the memory of a ring that is not empty was reclaimed")
		}
	}
	got := make([]byte, 8)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "not read" {
		t.Errorf("read %q, %v", got, err)
	}
	s.Write([]byte("not read"))
	if r.Close(); s.reclaim() {
		t.Error("the reclaimer waits for a reader that has closed the pipe")
	}
}

// TestReclaimer: memory is reclaimed automatically, and a node without memory to reclaim has no
// running timer.
func TestReclaimer(t *testing.T) {
	a, b := newPair(t, Config{})
	k := &a.endpoint.reclaimer
	k.every = 10 * time.Millisecond
	s, r := newPipe(t, a, b)
	running := func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.running
	}
	for range 2 {
		if running() {
			t.Error("the timer runs without need")
		}
		pass(t, s, r, fillAfter)
		pass(t, s, r, 10)
		kept := func() bool { some, _ := pages(t, &s.ring.ring); return some > 1 }
		for start := time.Now(); (kept() || running()) && time.Since(start) < 10*time.Second; {
			time.Sleep(time.Millisecond)
		}
		wantPages(t, &s.ring.ring, 1)
	}
	a.endpoint.Close()
	k.start()
	if running() {
		t.Error("the timer runs after the end")
	}
}

// TestNonTemporal: bytes of every number and alignment arrive with non-temporal stores.
func TestNonTemporal(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	var past atomic.Int64
	s.ring.copier = ntstore.Always(func(dst, src []byte) { past.Add(int64(copy(dst, src))) })
	for range 200 {
		pass(t, s, r, 1+rand.IntN(100_000))
	}
	if past.Load() == 0 {
		t.Error("none have")
	}
}
