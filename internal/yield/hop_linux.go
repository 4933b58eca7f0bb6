package yield

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hop moves this thread from its processor to the one, of those that it may run
// on, where the fewest others run, and reports where that is. If there are as
// many as here, save for this thread, it stays. It is for those who wait for
// each other while processors may be idle: the scheduler leaves some that only
// yield to each other where they are.
func Hop(others []int) (to int, hopped bool) {
	runtime.LockOSThread() // so that the thread that is bound is freed as well
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
	var there unix.CPUSet
	there.Set(to)
	if unix.SchedSetaffinity(0, &there) != nil {
		return from, false
	}
	unix.SchedSetaffinity(0, &allowed)
	return to, true
}

func crowd(others []int, cpu int) (n int) {
	for _, other := range others {
		if other == cpu {
			n++
		}
	}
	return n
}

// Processor is the number of the processor that this thread runs on, or -1 if
// that is not known.
func Processor() int {
	var cpu uint32
	_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	if errno != 0 {
		return -1
	}
	return int(cpu)
}
