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

// A memory is the memory use of a process, in bytes, and other resources. Values that the system does not
// report are 0.
type memory struct {
	Heap int // in use now, after collections
	Sys  int // ever had from the system, by the Go runtime
	Peak int // most that was ever resident

	Resident          int
	Goroutines        int
	Files             int // open, sockets among them
	Sockets, Mappings int // mappings of shared memory
}

func measure(_ context.Context, _ *desk, _ order, r *report) error {
	r.Memory = memoryNow()
	return nil
}

// memoryNow collects garbage twice, since contents of a sync.Pool survive one collection.
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

// tidy returns unused memory to the system.
func tidy(context.Context, *desk, order, *report) error {
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

// floats makes all-reduces of one vector, which is all that it has.
func floats(ctx context.Context, d *desk, o order, r *report) error {
	c := d.comm()
	x := make([]float32, o.N)
	for ; r.Rounds < o.Sets; r.Rounds++ {
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
