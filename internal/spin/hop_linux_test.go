package spin

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHop: Hop moves the thread to a processor with fewer others, if there is one, and does not
// change its allowed processors.
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
			t.Fatalf("from %d to %d: Hop returns %v", from, to, hopped)
		}
		if hopped {
			moved++
		}
		if unix.SchedGetaffinity(0, &after); after != before {
			t.Fatal("the allowed processors have changed")
		}
	}
	if before.Count() > 1 && moved == 0 {
		t.Errorf("still on the same processor, %d times", times)
	}
	if to, hopped := Hop(nil); hopped {
		t.Errorf("moved to %d without others", to)
	}
	if to, hopped := Hop([]int{0, 1, 2, 3}); hopped && before.Count() < 4 && to < 4 {
		t.Errorf("moved to %d, which has as many others", to)
	}
}

// TestDelay: a thread that shares its processor with a busy thread waits for it.
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
		runtime.LockOSThread() // the thread stays bound, and ends with the goroutine
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
		t.Log("this kernel has no schedstat") // then no rank returns
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
		t.Error("Return has not moved the thread")
	}
}
