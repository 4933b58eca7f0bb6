package spin

import (
	"bytes"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hop moves this thread to the allowed processor with the fewest others, and returns it. If the
// current processor has no more others, the thread stays. The scheduler does not move threads that
// only yield to each other, even if other processors are idle.
func Hop(others []int) (to int, hopped bool) {
	runtime.LockOSThread() // the same thread is bound and released
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	from := Processor()
	if from < 0 || unix.SchedGetaffinity(0, &allowed) != nil {
		return from, false
	}
	to, least := from, crowd(others, from)
	for cpu, seen := 0, 0; seen < allowed.Count() && cpu < len(allowed)*64; cpu++ {
		if !allowed.IsSet(cpu) {
			continue
		}
		seen++
		if n := crowd(others, cpu); n < least {
			to, least = cpu, n
		}
	}
	if to == from {
		return from, false
	}
	return to, move(to, &allowed) == nil
}

// First returns the first processor that this process may use.
func First() int {
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return 0
	}
	for cpu := range len(allowed) * 64 {
		if allowed.IsSet(cpu) {
			return cpu
		}
	}
	return 0
}

// Return moves this thread back to a processor, if that is allowed.
func Return(to int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) == nil && allowed.IsSet(to) {
		_ = move(to, &allowed)
	}
}

// move moves this thread to a processor without binding it there.
func move(to int, allowed *unix.CPUSet) error {
	var there unix.CPUSet
	there.Set(to)
	if err := unix.SchedSetaffinity(0, &there); err != nil {
		return err
	}
	return unix.SchedSetaffinity(0, allowed)
}

// Delay returns the time that this thread was runnable while others ran on its processor. It
// also returns the thread, since a goroutine may change threads; 0 if nothing is known.
func Delay() (d time.Duration, thread int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd, err := unix.Open("/proc/thread-self/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0
	}
	defer unix.Close(fd)
	var text [128]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return 0, 0
	}
	// Three numbers: the time that the thread has run, the time that it has waited, both in
	// nanoseconds, and the number of its time slices; see proc(5) and
	// Documentation/scheduler/sched-stats.
	fields := bytes.Fields(text[:n])
	if len(fields) != 3 {
		return 0, 0
	}
	for _, digit := range fields[1] {
		d = 10*d + time.Duration(digit-'0')
	}
	return d, unix.Gettid()
}

func crowd(others []int, cpu int) (n int) {
	for _, other := range others {
		if other == cpu {
			n++
		}
	}
	return n
}

// Processor returns the processor of this thread, or -1 if it is unknown.
func Processor() int {
	var cpu uint32
	_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	if errno != 0 {
		return -1
	}
	return int(cpu)
}
