package launch

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A register records the order of the ends of children.
//
// A rank that dies makes others fail within a millisecond. If a thread waited for each
// child, the scheduler would decide the order of the reports. epoll reports descriptors
// in the order of their events, to a single goroutine.
type register struct {
	epoll int
	stop  *os.File // write end of woken: closing it ends the goroutine
	woken *os.File
	done  sync.WaitGroup

	mu    sync.Mutex
	ended map[int32]chan<- time.Time // by pidfd
}

// newRegister returns nil if the kernel lacks epoll.
func newRegister() *register {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	woken, stop, err := os.Pipe()
	if err != nil {
		unix.Close(epoll)
		return nil
	}
	r := &register{epoll: epoll, stop: stop, woken: woken, ended: make(map[int32]chan<- time.Time)}
	if err := r.await(int(woken.Fd())); err != nil {
		r.release()
		return nil
	}
	r.done.Go(r.run)
	return r
}

func (r *register) await(fd int) error {
	return unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd),
	})
}

// add returns a channel that receives the time at which the process has ended. The
// times of two processes are in the order of their ends. The channel is nil if the kernel cannot
// report the end.
func (r *register) add(pidfd int) <-chan time.Time {
	if r == nil || pidfd < 0 {
		return nil
	}
	c := make(chan time.Time, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.await(pidfd); err != nil {
		return nil
	}
	r.ended[int32(pidfd)] = c
	return c
}

func (r *register) run() {
	var last time.Time
	events := make([]unix.EpollEvent, 16)
	stop := int32(r.woken.Fd())
	for {
		n, err := unix.EpollWait(r.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			// Only this goroutine uses the set: an error is a bug.
			panic(os.NewSyscallError("epoll_wait", err))
		}
		for _, e := range events[:max(n, 0)] {
			if e.Fd == stop {
				return
			}
			now := time.Now()
			if !now.After(last) {
				now = last.Add(1)
			}
			last = now
			r.report(e.Fd, now)
		}
	}
}

func (r *register) report(pidfd int32, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[pidfd] <- at // has capacity for the only value
	delete(r.ended, pidfd)
}

// close ends the register. All added children must have ended.
func (r *register) close() {
	if r == nil {
		return
	}
	r.stop.Close()
	r.done.Wait()
	r.release()
}

func (r *register) release() {
	r.stop.Close()
	r.woken.Close()
	unix.Close(r.epoll)
}

// pidfdOf requests a pidfd of the process that attr will start.
func pidfdOf(attr *syscall.SysProcAttr) *int {
	fd := -1
	attr.PidFD = &fd
	return &fd
}

// closePidfd closes a pidfd of pidfdOf.
func closePidfd(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
