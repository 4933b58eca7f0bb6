package shm

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestGuard: the thing is released once, after the last use.
func TestGuard(t *testing.T) {
	for range 50 {
		var released atomic.Int32
		g := guard{release: func() { released.Add(1) }}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for g.enter() {
					if released.Load() != 0 {
						t.Error("released in use")
					}
					g.leave()
				}
			})
		}
		all.Go(g.retire)
		all.Go(g.retire)
		all.Wait()
		if n := released.Load(); n != 1 {
			t.Fatalf("released %d times", n)
		}
	}
}

// TestViewOutlivesConn: memory stays mapped as long as a view shows it.
func TestViewOutlivesConn(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, a, b)
	if _, err := s.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	n, _ := r.ReadFunc(10, func(p []byte) {
		s.Close()
		a.Close()
		<-b.Done()
		r.Close()
		b.owner.Close()
		if string(p) != "still here" {
			t.Errorf("the view shows %q", p)
		}
	})
	if n != 10 {
		t.Errorf("ReadFunc returns %d", n)
	}
	if r.enter() {
		t.Error("the memory can be used after its end")
	}
}
