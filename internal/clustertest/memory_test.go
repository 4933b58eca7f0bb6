package clustertest

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// A memory is how much memory a process uses, in bytes.
type memory struct {
	Heap int // in use now, after a collection
	Sys  int // ever had from the system, by the Go runtime
	Peak int // most that was ever resident; 0 where the system does not say
}

func measure(_ context.Context, _ *desk, _ order, r *report) error {
	r.Memory = memoryNow()
	return nil
}

func memoryNow() memory {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return memory{Heap: int(s.HeapInuse), Sys: int(s.Sys), Peak: peak()}
}

// peak is VmHWM of Linux.
func peak() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			return kb << 10
		}
	}
	return 0
}
