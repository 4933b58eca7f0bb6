package yield

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHop: the thread runs elsewhere afterwards, and may run where it could
// before.
func TestHop(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	moved := 0
	const times = 20
	for range times {
		var before, after unix.CPUSet
		from, err := processor()
		if err != nil {
			t.Fatal(err)
		}
		unix.SchedGetaffinity(0, &before)
		Hop()
		if to, _ := processor(); to != from {
			moved++
		}
		if unix.SchedGetaffinity(0, &after); after != before {
			t.Fatal("the thread may not run where it could before")
		}
	}
	if runtime.NumCPU() > 1 && moved == 0 {
		t.Errorf("still on the same processor, %d times", times)
	}
}
