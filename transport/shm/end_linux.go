package shm

import (
	"io"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// Reasons why one end of a pipe stops, or does not start, to move bytes. Those
// with lower bits go before others.
const (
	closedHere uint32 = 1 << iota
	endOfPipe
	connEnded
	deadlinePassed
)

// An end is what both ends of a pipe have in common: how they wait, and what
// makes them stop. The guard keeps the ring mapped.
type end struct {
	guard
	conn   *conn
	memory []byte
	asleep *atomic.Uint32 // this side's, in the ring
	other  *atomic.Uint32 // the peer's

	stopped  atomic.Uint32 // reasons
	parked   atomic.Bool
	attended atomic.Bool   // by one who does not wait; see transport.Poller
	token    chan struct{} // wakes the goroutine that is parked
	limit    deadline
	pace     pace
	// rest gives back memory that is not in use, and reports whether there is some
	// that may be given back later; nil if that is the affair of the peer.
	rest func() bool
}

// init makes an end of a ring. The conn knows of it only after conn.add.
func (e *end) init(c *conn, r *ring, asleep, other *atomic.Uint32) {
	e.conn, e.memory, e.asleep, e.other = c, r.memory, asleep, other
	e.token = make(chan struct{}, 1)
	e.limit.end = e
	e.release = func() {
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

// whyStopped is nil if bytes may move.
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

// finish gives the memory back as soon as nobody uses it.
func (e *end) finish() {
	e.limit.set(time.Time{})
	e.retire()
}

// setDeadline makes calls return with os.ErrDeadlineExceeded at t.
func (e *end) setDeadline(t time.Time) error {
	if e.stopped.Load()&^deadlinePassed != 0 {
		return e.whyStopped()
	}
	e.limit.set(t)
	return nil
}

// wake makes wait look again.
func (e *end) wake() {
	select {
	case e.token <- struct{}{}:
	default:
	}
}

// rung is called when the bell of the conn was rung, perhaps for this end.
func (e *end) rung() {
	if e.parked.Load() && e.asleep.Load() == 0 && !e.attended.Load() {
		e.wake()
	}
}

// alert wakes the peer if it sleeps. What it waits for has been written before:
// either the peer, who looks again after it said that it would sleep, sees
// that, or it is seen here that it sleeps. Atomic operations of Go are in one
// order for all, so not both sides can miss each other.
func (e *end) alert() {
	if e.other.Load() != 0 && e.other.Swap(0) != 0 {
		e.conn.bell.ring()
	}
}

// wait returns when word has another value than it had, or the end is stopped.
func (e *end) wait(word *atomic.Uint64, had uint64) {
	e.waitFor(func() bool { return word.Load() != had || e.stopped.Load() != 0 })
}

// waitFor returns when it is over, which a stopped end is. It does not look as
// long as the end is attended, unless that is stopped.
func (e *end) waitFor(over func() bool) {
	if e.attended.Load() {
		e.park(over)
		return
	}
	for range glances {
		if over() {
			e.pace.learn(0)
			return
		}
	}
	start := time.Now()
	if !e.spin(over, start) {
		e.park(over)
	}
	e.pace.learn(time.Since(start))
}

// spin yields the processor to other processes and to other goroutines in
// turn, and reports whether the wait was over before long.
func (e *end) spin(over func() bool, start time.Time) bool {
	owner := e.conn.owner
	limit := e.pace.spin(owner.spinMax)
	if limit == 0 || !owner.spinners.enter() {
		return false
	}
	defer owner.spinners.leave()
	for i := 0; ; i++ {
		if i%8 == 7 {
			runtime.Gosched()
		} else {
			unix.RawSyscallNoError(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		if e.attended.Load() {
			return false
		}
		if over() {
			return true
		}
		if i%4 == 3 && time.Since(start) > limit {
			return false
		}
	}
}

// park blocks the goroutine, but no thread.
func (e *end) park(over func() bool) {
	e.parked.Store(true)
	for e.stopped.Load() == 0 {
		if !e.attended.Load() {
			// No Store: the race detector makes one of it that others may see
			// only after this side has looked, and then nobody wakes it.
			e.asleep.Swap(1)
			if over() {
				break
			}
		}
		<-e.token
		if !e.attended.Load() && over() {
			break
		}
	}
	e.asleep.Store(0)
	e.parked.Store(false)
}
