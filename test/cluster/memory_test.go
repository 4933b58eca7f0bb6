package cluster

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar"
)

const mib = 1 << 20

// A memory has the memory use of a process in bytes, and counts of other resources. Values that the
// system does not report are 0.
type memory struct {
	Heap int // in use after garbage collection
	Sys  int // taken from the system by the Go runtime
	Peak int // largest resident memory so far

	Resident          int
	Goroutines        int
	Files             int // open files, including sockets
	Sockets, Mappings int // mappings of shared memory
}

func reportMemory(_ context.Context, _ *workerState, _ command, r *result) error {
	r.Memory = memoryNow()
	return nil
}

// memoryNow returns the memory use of this process. It collects garbage twice, since the contents of a
// sync.Pool survive one collection.
func memoryNow() memory {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	m := memory{
		Heap: int(s.HeapInuse), Sys: int(s.Sys), Peak: statusOf(os.Getpid(), "VmHWM"),
		Resident: statusOf(os.Getpid(), "VmRSS"), Goroutines: runtime.NumGoroutine(),
	}
	open, _ := os.ReadDir("/proc/self/fd")
	for _, f := range open {
		if name, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil {
			m.Files++
			m.Sockets += strings.Count(name, "socket:[")
		}
	}
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasSuffix(fields[1], "s") {
			m.Mappings++
		}
	}
	return m
}

// freeMemory returns unused memory to the system.
func freeMemory(context.Context, *workerState, command, *result) error {
	debug.FreeOSMemory()
	return nil
}

// statusOf returns a memory field of /proc/PID/status.
func statusOf(pid int, field string) (bytes int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			return kb << 10
		}
	}
	return 0
}

// reduceFloats makes all-reduces of one vector and allocates nothing else.
func reduceFloats(ctx context.Context, s *workerState, o command, r *result) error {
	c := s.comm()
	x := make([]float32, o.N)
	for ; r.Rounds < o.Rounds; r.Rounds++ {
		for i := range x {
			x[i] = float32(c.Rank() + i%1000 + r.Rounds)
		}
		if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
			return err
		}
		n := c.Size()
		for i := range x {
			if want := float32(n*(n-1)/2 + n*(i%1000+r.Rounds)); x[i] != want {
				return fmt.Errorf("element %d is %v, want %v", i, x[i], want)
			}
		}
	}
	return nil
}
