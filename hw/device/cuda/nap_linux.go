package cuda

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A nap is a sleep of a thread that another one can end. It is more exact than a timer: an idle process of Go sleeps for whole
// milliseconds.
type nap struct{ asleep atomic.Uint32 }

const (
	futexWait = 0 | futexPrivate
	futexWake = 1 | futexPrivate

	futexPrivate = 128
)

// exact lets the sleeps of this thread be exact to a microsecond, not to 50.
func exact() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(time.Microsecond), 0, 0, 0) }

// sleep sleeps for a time, unless ready reports a reason not to, or end is called.
func (n *nap) sleep(d time.Duration, ready func() bool) {
	n.asleep.Store(1)
	if !ready() {
		limit := unix.NsecToTimespec(int64(d))
		// A signal ends the sleep too. The caller sleeps again.
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&n.asleep)), futexWait, 1, uintptr(unsafe.Pointer(&limit)), 0, 0)
	}
	n.asleep.Store(0)
}

// end ends a sleep.
func (n *nap) end() {
	if n.asleep.CompareAndSwap(1, 0) {
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&n.asleep)), futexWake, 1, 0, 0, 0)
	}
}
