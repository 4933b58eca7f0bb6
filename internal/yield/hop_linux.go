package yield

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Hop moves this thread to another processor, if it may run on another one. It
// is for those who find that they share theirs with whom they wait for, while
// others may be idle: the scheduler leaves two that only yield to each other
// where they are.
func Hop() {
	runtime.LockOSThread() // so that the thread that is bound is freed as well
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	cpu, err := processor()
	if err != nil || unix.SchedGetaffinity(0, &allowed) != nil {
		return
	}
	others := allowed
	others.Clear(cpu)
	if others.Count() == 0 || unix.SchedSetaffinity(0, &others) != nil {
		return
	}
	unix.SchedSetaffinity(0, &allowed)
}

// processor is the one that this thread runs on.
func processor() (int, error) {
	var cpu uint32
	_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(cpu), nil
}
