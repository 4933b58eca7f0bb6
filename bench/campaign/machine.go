package campaign

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/nexar-go/nexar/bench/results"
)

// ThisMachine describes this machine. Memory is "unknown" where the system does not report it.
func ThisMachine() results.Machine {
	m := results.Machine{CPU: runtime.GOARCH, Cores: runtime.NumCPU(), Memory: "unknown", Kernel: runtime.GOOS}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if name := field(string(text), "model name"); name != "" {
			m.CPU = name
		}
		if strings.Contains(field(string(text), "flags"), "hypervisor") {
			m.Note = "A virtual machine: its cores may be shared with others."
		}
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib uint64
		if _, err := fmt.Sscanf(field(string(text), "MemTotal"), "%d kB", &kib); err == nil {
			m.Memory = humanize.IBytes(kib << 10)
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		// The suffix belongs to the distribution.
		number, _, _ := strings.Cut(strings.TrimSpace(string(text)), "-")
		m.Kernel = "Linux " + number
	}
	return m
}

// busy returns how many processors other work uses: the mean of a second. It returns 0 where the system does not report it.
func busy(ctx context.Context) float64 {
	used, all := processorTime()
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
	usedAfter, allAfter := processorTime()
	if allAfter <= all {
		return 0
	}
	return (usedAfter - used) / (allAfter - all) * float64(runtime.NumCPU())
}

// processorTime returns the time of all processors since the start of the machine, and the part of it that was used.
func processorTime() (used, all float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	total, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(total) {
		v, err := strconv.ParseFloat(word, 64)
		if err != nil || i > 8 { // The first word is a name. The last ones are parts of those before.
			continue
		}
		all += v
		if i != 4 && i != 5 { // idle, also while a disk works
			used += v
		}
	}
	return used, all
}

// field returns the value of the first line "name : value", or "".
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
