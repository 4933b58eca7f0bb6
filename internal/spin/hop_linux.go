package spin

import (
	"bytes"
	"runtime"
	"time"
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
	return to, move(to, &allowed) == nil
}

// Return moves this thread to a processor where it was before.
func Return(to int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) == nil && allowed.IsSet(to) {
		move(to, &allowed)
	}
}

// move moves this thread to a processor, but does not bind it there.
func move(to int, allowed *unix.CPUSet) error {
	var there unix.CPUSet
	there.Set(to)
	if err := unix.SchedSetaffinity(0, &there); err != nil {
		return err
	}
	return unix.SchedSetaffinity(0, allowed)
}

// Delay is for how long this thread could have run while others did on its
// processor, since it began. It tells the number of the thread, too, as a
// goroutine may be on another one next time; that is 0 if nothing is known.
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
	// Three numbers: nanoseconds that it ran, those that it waited, and how
	// often it was its turn; see proc(5) and Documentation/scheduler/sched-stats.
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
