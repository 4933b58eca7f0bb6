package spin

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHop: the thread goes where fewer run, if there is such a place, and may
// run afterwards where it could before.
func TestHop(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	moved := 0
	const times = 20
	for range times {
		from := Processor()
		to, hopped := Hop([]int{from})
		if hopped != (to != from) {
			t.Fatalf("from %d to %d: says %v", from, to, hopped)
		}
		if hopped {
			moved++
		}
		if unix.SchedGetaffinity(0, &after); after != before {
			t.Fatal("the thread may not run where it could before")
		}
	}
	if before.Count() > 1 && moved == 0 {
		t.Errorf("still on the same processor, %d times", times)
	}
	if to, hopped := Hop(nil); hopped {
		t.Errorf("went to %d, though nobody was in the way", to)
	}
	if to, hopped := Hop([]int{0, 1, 2, 3}); hopped && before.Count() < 4 && to < 4 {
		t.Errorf("went to %d, where as many run", to)
	}
}

// TestDelay: a thread that shares its processor with a busy one waits for it.
func TestDelay(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	from := Processor()
	var one unix.CPUSet
	one.Set(from)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &before)
	var stop atomic.Bool
	bound := make(chan error)
	go func() {
		runtime.LockOSThread() // and ends with the goroutine, as it stays bound
		bound <- unix.SchedSetaffinity(0, &one)
		for !stop.Load() {
		}
		close(bound)
	}()
	if err := <-bound; err != nil {
		t.Fatal(err)
	}
	first, thread := Delay()
	if thread == 0 {
		t.Log("this kernel does not tell") // Then nobody hops back.
	}
	for began := time.Now(); time.Since(began) < 50*time.Millisecond; {
	}
	last, same := Delay()
	stop.Store(true)
	<-bound
	if d := last - first; same != thread || thread != 0 && (d < 5*time.Millisecond || d > time.Minute) {
		t.Errorf("in 50 ms beside a busy thread: delayed by %v, in thread %d and %d", d, thread, same)
	}
	if Return(from); Processor() != from {
		t.Error("is elsewhere after Return")
	}
}
