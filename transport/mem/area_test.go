package mem

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/transport"
)

// sharers returns both ends of a connection. Each shape is the number and the length of the
// areas of an endpoint.
func sharers(t *testing.T, shapes ...[2]int) (a, b transport.MemorySharer) {
	t.Helper()
	n := NewNetwork()
	var ends []transport.Transport
	for i, name := range []string{"a", "b"} {
		n.Share(shapes[i][0], shapes[i][1])
		end, err := n.Listen(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end.Close() })
		ends = append(ends, end)
	}
	out, err := ends[0].Dial(t.Context(), "b", "b")
	if err != nil {
		t.Fatal(err)
	}
	in, err := ends[1].Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return transport.CapabilitiesOf(out).MemorySharer, transport.CapabilitiesOf(in).MemorySharer
}

// acquire acquires the areas of s until the end of the test.
func acquire(t *testing.T, s transport.MemorySharer) transport.Areas {
	t.Helper()
	areas, err := s.AcquireAreas()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(areas.Release)
	return areas
}

func TestAreas(t *testing.T) {
	const count, size = 3, 10_000
	a, b := sharers(t, [2]int{count, size}, [2]int{count, size})
	if n, each := a.Areas(); n != count || each != size {
		t.Errorf("%d areas of %d bytes, want %d of %d", n, each, count, size)
	}
	for i := range count {
		aOwn, aPeer := acquire(t, a).Area(i)
		bOwn, bPeer := acquire(t, b).Area(i)
		if aPeer[7] != 0 {
			t.Error("an area is not zero initially")
		}
		aOwn[7], bOwn[7] = 1, 2
		if len(aOwn) != size || &aOwn[0] != &bPeer[0] || &aPeer[0] != &bOwn[0] || aPeer[7] != 2 || bPeer[7] != 1 {
			t.Error("an area differs between its owner and the peer")
		}
		if p := uintptr(unsafe.Pointer(&aOwn[0])); p%pageSize != 0 {
			t.Errorf("an area begins at %#x, want a multiple of %#x", p, pageSize)
		}
	}
	for _, shapes := range [][2][2]int{{{1, 0}, {1, 0}}, {{0, 100}, {0, 100}}, {{1, 0}, {1, 100}}, {{1, 100}, {1, 200}}, {{1, 200}, {2, 100}}} {
		a, _ := sharers(t, shapes[:]...)
		if count, size := a.Areas(); count != 0 || size != 0 {
			t.Errorf("areas of %v bytes: got %d of %d", shapes, count, size)
		}
	}
}

func TestFutex(t *testing.T) {
	a, b := sharers(t, [2]int{1, 4096}, [2]int{1, 4096})
	own, _ := acquire(t, a).Area(0)
	_, peer := acquire(t, b).Area(0)
	mine := (*atomic.Uint32)(unsafe.Pointer(&own[64]))
	theirs := (*atomic.Uint32)(unsafe.Pointer(&peer[64]))
	b.FutexWait(theirs, 1, time.Hour) // returns at once: the word has another value
	if begin := time.Now(); true {
		b.FutexWait(theirs, 0, 5*time.Millisecond)
		if d := time.Since(begin); d < 5*time.Millisecond {
			t.Errorf("FutexWait returned after %v, want 5ms", d)
		}
	}
	const rounds = 2000
	var both sync.WaitGroup
	both.Go(func() {
		for i := range uint32(rounds) {
			for mine.Load() != 2*i+1 {
				a.FutexWait(mine, 2*i, time.Hour)
			}
			mine.Store(2*i + 2)
			a.FutexWake(mine)
		}
	})
	both.Go(func() {
		for i := range uint32(rounds) {
			theirs.Store(2*i + 1)
			b.FutexWake(theirs)
			for theirs.Load() != 2*i+2 {
				b.FutexWait(theirs, 2*i+1, time.Hour)
			}
		}
	})
	both.Wait()
}

// TestFutexTimeoutDuringWake: timeouts and wakes may coincide.
func TestFutexTimeoutDuringWake(t *testing.T) {
	a, _ := sharers(t, [2]int{1, 4096}, [2]int{1, 4096})
	own, _ := acquire(t, a).Area(0)
	word := (*atomic.Uint32)(unsafe.Pointer(&own[0]))
	var waking sync.WaitGroup
	var over atomic.Bool
	waking.Go(func() {
		for !over.Load() {
			a.FutexWake(word)
		}
	})
	for range 2000 {
		a.FutexWait(word, 0, time.Microsecond)
	}
	over.Store(true)
	waking.Wait()
}
