package launch

import (
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A register records the order in which children end.
//
// A rank that dies takes others with it within a millisecond. Were each child
// waited for by a thread of its own, chance would decide which thread runs
// first. The kernel, however, queues ready descriptors in the order in which
// they became ready, and one goroutine here takes them from that queue.
type register struct {
	epoll int
	stop  *os.File // closing it ends the goroutine
	woken *os.File
	done  sync.WaitGroup

	mu    sync.Mutex
	ended map[int32]chan<- time.Time // by pidfd
}

// newRegister returns nil if the kernel cannot do this.
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

// add returns a channel that gives the time at which a process has ended, and
// later ones for those that end later. It is nil if that cannot be told.
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
			// The set is this goroutine's own, so its use cannot be wrong.
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
			r.tell(e.Fd, now)
		}
	}
}

func (r *register) tell(pidfd int32, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[pidfd] <- at // has room for the only one
	delete(r.ended, pidfd)
}

// close ends the register. All children that were added have ended.
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

// pidfdOf asks for a descriptor of the process that is to be started.
func pidfdOf(attr *syscall.SysProcAttr) *int {
	fd := -1
	attr.PidFD = &fd
	return &fd
}

// closePidfd gives back what pidfdOf has got.
func closePidfd(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}
