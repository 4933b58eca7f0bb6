package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// An executor runs functions on one thread, one after the other, and poll in between.
type executor struct {
	// poll looks for work that is done, and reports whether there is work that a call waits for.
	poll func() (awaited bool)

	mu     sync.Mutex
	jobs   []*job
	ending bool // no jobs are accepted

	wake   chan struct{}
	ended  chan struct{} // closed when the goroutine ends
	failed chan struct{} // closed when a call of the driver does not return
	err    error         // wraps errNotReturned; valid when failed is closed

	since   atomic.Int64        // when the running job began, in ns since start; 0 if none runs
	running atomic.Pointer[job] // the job that began last
	start   time.Time
}

// A job is a function for the executor.
type job struct {
	what  string
	do    func() error
	undo  func()       // if the caller no longer waits; may be nil
	state atomic.Int32 // jobDone or jobAbandoned: the first of the executor and the caller sets it
	done  chan struct{}
	err   error // valid when done is closed
}

const (
	jobDone = iota + 1
	jobAbandoned
)

// newExecutor starts an executor. Init runs first, on its thread; if it fails, the executor ends.
func newExecutor(limit time.Duration, init func() error, poll func() bool) (*executor, error) {
	x := &executor{
		poll: poll, wake: make(chan struct{}, 1), ended: make(chan struct{}), failed: make(chan struct{}), start: time.Now(),
	}
	begun := make(chan error, 1)
	go x.run(func() error {
		err := init()
		begun <- err
		return err
	})
	go x.watch(limit)
	select {
	case err := <-begun:
		if err != nil {
			<-x.ended
		}
		return x, err
	case <-x.failed:
		return nil, x.err
	}
}

// run is the goroutine. It keeps its thread locked when it ends, so that Go ends the thread, which has a
// context.
func (x *executor) run(init func() error) {
	defer close(x.ended)
	runtime.LockOSThread()
	x.begin(&job{what: initialization})
	err := init()
	x.since.Store(0)
	if err != nil {
		x.mu.Lock()
		x.ending = true
		x.mu.Unlock()
		return
	}
	idle, poll := 0, &job{what: polling}
	for {
		x.mu.Lock()
		jobs, ending := x.jobs, x.ending
		x.jobs = nil
		x.mu.Unlock()
		for _, j := range jobs {
			x.begin(j)
			j.run()
			x.since.Store(0)
		}
		if ending && len(jobs) == 0 {
			return
		}
		x.begin(poll)
		awaited := x.poll()
		x.since.Store(0)
		if len(jobs) > 0 {
			idle = 0
			continue
		}
		idle++
		x.rest(awaited, idle)
	}
}

// rest waits for jobs, and if work is awaited, for a while at most, which grows with the number of
// questions without an answer.
func (x *executor) rest(awaited bool, idle int) {
	const (
		spins    = 20
		shortest = 20 * time.Microsecond
		longest  = time.Millisecond
	)
	switch {
	case !awaited:
		<-x.wake
	case idle < spins:
		runtime.Gosched()
	default:
		timer := time.NewTimer(min(shortest<<min(idle-spins, 10), longest))
		defer timer.Stop()
		select {
		case <-x.wake:
		case <-timer.C:
		}
	}
}

// Names of the work of an executor besides its jobs, for errors.
const (
	initialization = "the initialization of the context"
	polling        = "cuEventQuery"
)

// begin notes that a job begins, for watch.
func (x *executor) begin(j *job) {
	x.running.Store(j)
	x.since.Store(max(1, int64(time.Since(x.start))))
}

var errNotReturned = errors.New("the CUDA driver has not returned")

// watch fails the executor if a job takes longer than limit.
func (x *executor) watch(limit time.Duration) {
	ticks := time.NewTicker(max(limit/8, time.Millisecond))
	defer ticks.Stop()
	for {
		select {
		case <-x.ended:
			return
		case <-ticks.C:
		}
		since := x.since.Load()
		if took := time.Since(x.start) - time.Duration(since); since != 0 && took > limit {
			x.err = fmt.Errorf("%w from %s for %v: the GPU or the driver hangs", errNotReturned, x.running.Load().what, limit)
			close(x.failed)
			return
		}
	}
}

func (j *job) run() {
	if j.state.Load() == jobAbandoned {
		return
	}
	err := j.do()
	if j.state.CompareAndSwap(0, jobDone) {
		j.err = err
		close(j.done)
	} else if err == nil && j.undo != nil {
		j.undo()
	}
}

// do runs a function on the thread and returns its error. If ctx ends first, it returns the cause; the
// function still runs, and then undo, if it succeeds. After end it returns closed.
func (x *executor) do(ctx context.Context, what string, closed error, do func() error, undo func()) error {
	j := &job{what: what, do: do, undo: undo, done: make(chan struct{})}
	if !x.post(j) {
		return closed
	}
	var err error
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-x.failed:
		err = x.err
	}
	if j.state.CompareAndSwap(0, jobAbandoned) {
		return err
	}
	<-j.done
	return j.err
}

// post queues a job. It reports whether the executor still accepts jobs.
func (x *executor) post(j *job) bool {
	x.mu.Lock()
	if x.ending {
		x.mu.Unlock()
		return false
	}
	x.jobs = append(x.jobs, j)
	x.mu.Unlock()
	x.nudge()
	return true
}

// async queues a function that no call waits for.
func (x *executor) async(what string, do func()) {
	x.post(&job{what: what, do: func() error { do(); return nil }, done: make(chan struct{})})
}

// nudge ends a rest.
func (x *executor) nudge() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// end stops the executor after the jobs that are queued, and waits for that unless a call hangs.
func (x *executor) end() {
	x.mu.Lock()
	x.ending = true
	x.mu.Unlock()
	x.nudge()
	select {
	case <-x.ended:
	case <-x.failed:
	}
}
