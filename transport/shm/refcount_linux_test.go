package shm

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestRefCount: the resource is freed once, after the last use.
func TestRefCount(t *testing.T) {
	for range 50 {
		var released atomic.Int32
		g := refCount{free: func() { released.Add(1) }}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for g.acquire() {
					if released.Load() != 0 {
						t.Error("freed in use")
					}
					g.unref()
				}
			})
		}
		all.Go(g.retire)
		all.Go(g.retire)
		all.Wait()
		if n := released.Load(); n != 1 {
			t.Fatalf("freed %d times, want once", n)
		}
	}
}

// TestViewOutlivesConn: memory stays mapped until the view has returned.
func TestViewOutlivesConn(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	if _, err := s.Write([]byte("still used")); err != nil {
		t.Fatal(err)
	}
	n, _ := r.ReadFunc(10, func(p []byte) {
		s.Close()
		a.Close()
		<-b.Done()
		r.Close()
		b.endpoint.Close()
		if string(p) != "still used" {
			t.Errorf("the view shows %q", p)
		}
	})
	if n != 10 {
		t.Errorf("ReadFunc returns %d", n)
	}
	if r.acquire() {
		t.Error("the memory can be used after its end")
	}
}
