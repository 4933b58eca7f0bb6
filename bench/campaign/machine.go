package campaign

import (
	"fmt"
	"os"
	"runtime"
	"strings"

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

// load returns the load average of the last minute, or 0 where the system does not report it.
func load() (load float64) {
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &load)
	}
	return load
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
