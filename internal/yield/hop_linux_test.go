package yield

import (
	"runtime"
	"testing"

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
