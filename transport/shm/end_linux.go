package shm

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/transport"
)

// Reasons why one end of a pipe does not move bytes. Lower bits take precedence.
const (
	closedHere uint32 = 1 << iota
	endOfPipe
	connEnded
	deadlinePassed
)

// An end is the common part of both ends of a pipe: how they wait, and why they stop. The
// refCount keeps the ring mapped.
type end struct {
	refCount
	conn   *conn
	memory []byte
	asleep *atomic.Uint32 // in the ring: this side sleeps
	other  *atomic.Uint32 // in the ring: the peer sleeps

	stopped atomic.Uint32 // reasons
	parked  atomic.Bool
	polling atomic.Bool   // another goroutine polls; see transport.Poller
	token   chan struct{} // wakes the parked goroutine
	pace    pace

	mu    sync.Mutex
	limit deadline.Deadline // guarded by mu

	// reclaim returns unused memory to the system, and reports whether a later call may return
	// more. It is nil at the reading end.
	reclaim func() bool
	// unread reports whether the ring has unread bytes. It is nil at the writing end.
	unread func() bool
}

// init initializes the end of a ring. The conn knows the end only after conn.add.
func (e *end) init(c *conn, r *ring, asleep, other *atomic.Uint32) {
	e.conn, e.memory, e.asleep, e.other = c, r.memory, asleep, other
	e.token = make(chan struct{}, 1)
	e.limit = deadline.Deadline{L: &e.mu, Wake: func() { e.stop(deadlinePassed) }}
	e.pace = newPace()
	e.free = func() {
		c.drop(e)
		unix.Munmap(e.memory)
	}
}

// stop makes calls return, now and later.
func (e *end) stop(reason uint32) {
	e.stopped.Or(reason)
	e.wake()
}

func (e *end) resume(reason uint32) { e.stopped.And(^reason) }

// whyStopped returns nil if bytes may move.
func (e *end) whyStopped() error {
	reasons := e.stopped.Load()
	switch {
	case reasons == 0:
		return nil
	case reasons&closedHere != 0:
		return transport.ErrClosed
	case reasons&endOfPipe != 0:
		return io.EOF
	case reasons&connEnded != 0:
		return e.conn.err
	}
	return os.ErrDeadlineExceeded
}

// finish unmaps the memory when the last call that uses it returns.
func (e *end) finish() {
	e.limitTo(time.Time{})
	e.retire()
}

// setDeadline makes calls return with os.ErrDeadlineExceeded at t.
func (e *end) setDeadline(t time.Time) error {
	if e.stopped.Load()&^deadlinePassed != 0 {
		return e.whyStopped()
	}
	e.limitTo(t)
	return nil
}

func (e *end) limitTo(t time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.limit.Set(t); !e.limit.Passed() {
		e.resume(deadlinePassed)
	}
}

// wake makes a parked goroutine check its condition again.
func (e *end) wake() {
	select {
	case e.token <- struct{}{}:
	default:
	}
}

// signaled is called when the peer has signaled the conn, perhaps for this end.
func (e *end) signaled() {
	if e.parked.Load() && e.asleep.Load() == 0 && !e.polling.Load() {
		e.wake()
	}
}

// wakePeer wakes the peer if it sleeps. The caller has changed a word before: either the
// peer, which reads the word again after it has set its flag, sees the change, or this side
// sees the flag. Atomic operations of Go have one order for all, so that both cannot miss
// each other.
func (e *end) wakePeer() {
	if e.other.Load() != 0 && e.other.Swap(0) != 0 {
		e.conn.peerEvent.signal()
	}
}

// waitFor blocks until done returns true, which it must do for a stopped end. While another
// goroutine polls, it blocks until the end is stopped.
func (e *end) waitFor(done func() bool) {
	if e.polling.Load() {
		e.park(done)
		return
	}
	for range busyReads {
		if done() {
			e.pace.learn(0)
			return
		}
	}
	start := time.Now()
	if !e.spin(done, start) {
		e.park(done)
	}
	e.pace.learn(time.Since(start))
}

// spin yields the processor to other processes and to other goroutines in turn. It reports
// false if the wait takes too long.
func (e *end) spin(done func() bool, start time.Time) bool {
	endpoint := e.conn.endpoint
	limit := e.pace.spin(endpoint.spinMax)
	if limit == 0 || !endpoint.spinners.begin() {
		return false
	}
	defer endpoint.spinners.end()
	for i := 0; ; i++ {
		if i%8 == 7 {
			runtime.Gosched()
		} else {
			unix.RawSyscallNoError(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		if e.polling.Load() {
			return false
		}
		if done() {
			return true
		}
		if i%4 == 3 && time.Since(start) > limit {
			return false
		}
	}
}

// park blocks the goroutine, but no thread.
func (e *end) park(done func() bool) {
	e.parked.Store(true)
	for e.stopped.Load() == 0 {
		if !e.polling.Load() {
			// A Swap, since the race detector delays a Store: the peer could see it only
			// after this side has checked, and would not wake it.
			e.asleep.Swap(1)
			if done() {
				break
			}
		}
		<-e.token
		if !e.polling.Load() && done() {
			break
		}
	}
	e.asleep.Store(0)
	e.parked.Store(false)
}
