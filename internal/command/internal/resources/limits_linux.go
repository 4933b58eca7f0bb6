package resources

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// read reads the limits of this process. root is "/" except in tests.
func read(root string) limits {
	l := limits{
		files:       rlimit(unix.RLIMIT_NOFILE).Max, // Go programs raise their own soft limit.
		userThreads: unlimited,
		pids:        cgroup(root, "pids", "pids.max", "pids.current"),
		memory:      min(cgroup(root, "memory", "memory.max", ""), cgroup(root, "memory", "memory.limit_in_bytes", ""), available(root)),
	}
	// The limit does not apply to the superuser.
	if limit := rlimit(unix.RLIMIT_NPROC).Cur; os.Getuid() != 0 && limit != unlimited {
		l.userThreads = left(limit, threadsOf(root, os.Getuid()))
	}
	return l
}

func rlimit(resource int) unix.Rlimit {
	limit := unix.Rlimit{Cur: unlimited, Max: unlimited}
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return unix.Rlimit{Cur: unlimited, Max: unlimited}
	}
	return limit
}

func left(limit, used uint64) uint64 { return limit - min(limit, used) }

// cgroup returns the smallest rest of a limit of the cgroup of this process and those above it. An
// empty current stands for no use.
func cgroup(root, controller, limit, current string) uint64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return unlimited
	}
	rest := uint64(unlimited)
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		top := filepath.Join(root, "sys/fs/cgroup")
		switch fields[1] {
		case "": // version 2
		case controller:
			top = filepath.Join(top, controller)
		default:
			continue
		}
		// In a container the path may be that on the host, of which only the end is visible.
		for dir := filepath.Join("/", fields[2]); ; dir = filepath.Dir(dir) {
			if n, ok := number(filepath.Join(top, dir, limit)); ok {
				used, _ := number(filepath.Join(top, dir, current))
				rest = min(rest, left(n, used))
			}
			if dir == "/" {
				break
			}
		}
	}
	if rest > math.MaxInt64/2 { // version 1 has no word for no limit
		return unlimited
	}
	return rest
}

// number reads a file with a number; "max" is none.
func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// available returns the memory that processes can get without swapping.
func available(root string) uint64 {
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return unlimited
	}
	if kib, ok := field(string(text), "MemAvailable:"); ok {
		return kib << 10
	}
	return unlimited
}

// threadsOf counts the threads of a user.
func threadsOf(root string, uid int) (sum uint64) {
	files, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*/status")) // The pattern is well-formed.
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // It has ended.
		}
		if owner, ok := field(string(text), "Uid:"); ok && strconv.FormatUint(owner, 10) == strconv.Itoa(uid) {
			n, _ := field(string(text), "Threads:")
			sum += n
		}
	}
	return sum
}

// field returns the first number of a line of a file in /proc.
func field(text, name string) (uint64, bool) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
