package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/spin"
)

// An executor runs functions on one thread, one after the other, and poll in between.
type executor struct {
	// poll looks for work that is done. It reports whether a call waits for work, and whether one slept until now.
	poll func() (awaited, slept bool)

	mu     sync.Mutex
	jobs   []*job
	ending bool // no jobs are accepted

	wake   chan struct{}
	nap    nap
	ended  chan struct{} // closed when the goroutine ends
	failed chan struct{} // closed when a call of the driver does not return
	err    error         // wraps errNotReturned; valid when failed is closed

	polls   job                 // poll, for errors
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
	done  signal
	err   error // valid when done is raised
}

const (
	jobDone = iota + 1
	jobAbandoned
)

// newExecutor starts an executor. Init runs first, on its thread; if it fails, the executor ends. If it takes longer than limit,
// newExecutor returns an error, and undo runs when init returns after all.
func newExecutor(limit time.Duration, init func() error, undo func(), poll func() (awaited, slept bool)) (*executor, error) {
	x := &executor{
		poll: poll, wake: make(chan struct{}, 1), ended: make(chan struct{}), failed: make(chan struct{}), start: time.Now(),
		polls: job{what: polling},
	}
	begun := make(chan error, 1)
	go x.run(func() error {
		err := init()
		if err == nil && x.hangs() {
			undo()
			err = x.err
		}
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
		x.mu.Lock()
		x.ending = true // when init returns after all
		x.mu.Unlock()
		return nil, x.err
	}
}

// run is the goroutine. It keeps its thread locked when it ends, so that Go ends the thread, which has a
// context.
func (x *executor) run(init func() error) {
	defer close(x.ended)
	runtime.LockOSThread()
	exact()
	x.begin(&job{what: initialization})
	err := init()
	x.since.Store(0)
	if err != nil {
		x.mu.Lock()
		x.ending = true
		x.mu.Unlock()
		return
	}
	var r idleTime
	for {
		x.mu.Lock()
		jobs, ending := x.jobs, x.ending
		x.jobs = nil
		x.mu.Unlock()
		for _, j := range jobs {
			x.begin(j)
			slept := j.run()
			x.since.Store(0)
			if slept {
				runtime.Gosched()
			}
		}
		if ending && len(jobs) == 0 {
			return
		}
		if len(jobs) > 0 {
			r = idleTime{}
			x.look() // Jobs may follow without a pause, and calls wait for work.
			continue
		}
		if r.polls() {
			r.awaited = x.look()
		}
		x.await(&r)
	}
}

// look calls poll. It reports whether a call waits for work.
func (x *executor) look() (awaited bool) {
	x.begin(&x.polls)
	awaited, slept := x.poll()
	x.since.Store(0)
	if slept {
		runtime.Gosched()
	}
	return awaited
}

// An idleTime is the time without jobs.
type idleTime struct {
	began   time.Time
	next    time.Time // when to look for work that is done
	awaited bool      // a call waits for work
	turns   spin.Turns
}

// spinTime is how long a thread looks for a job, or for the end of one, before it sleeps: a collective makes several calls
// in turn, and each sleep and wakeup costs as much as a short copy.
const spinTime = 20 * time.Microsecond

// polls reports whether it is time to look for work that is done: at once, and then, if a call waits, in intervals that are
// a quarter of the time so far. The driver has locks, which other threads need meanwhile.
func (r *idleTime) polls() bool {
	const (
		part     = 4
		shortest = 2 * time.Microsecond
		longest  = time.Millisecond
	)
	now := time.Now()
	switch {
	case r.began.IsZero():
		r.began = now
	case !r.awaited || now.Before(r.next):
		return false
	}
	r.next = now.Add(min(max(now.Sub(r.began)/part, shortest), longest))
	return true
}

// await waits for jobs, and if a call waits for work, until the next poll at most.
func (x *executor) await(r *idleTime) {
	pause := time.Until(r.next)
	switch {
	case r.awaited && pause < spinTime:
		r.turns.Yield()
	case !r.awaited && time.Since(r.began) < spinTime:
		select {
		case <-x.wake:
			*r = idleTime{}
		default:
			r.turns.Yield()
		}
	case !r.awaited:
		<-x.wake
		*r = idleTime{}
	default:
		x.nap.sleep(pause, x.hasJobs)
	}
}

func (x *executor) hasJobs() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.jobs) > 0 || x.ending
}

// jobsMax is the number of jobs from which on callers that need not wait do so.
const jobsMax = 1000

func (x *executor) isBehind() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.jobs) >= jobsMax
}

// A signal is raised once, for one or more goroutines that wait for it.
type signal struct {
	c      chan struct{}
	parked atomic.Bool // a goroutine sleeps until it is raised
}

func newSignal() signal { return signal{c: make(chan struct{})} }

// raise reports whether a goroutine slept. It is runnable now, but on the processor of this thread, from which others take it
// only after some time: yield to it.
func (s *signal) raise() (slept bool) {
	close(s.c)
	return s.parked.Load()
}

func (s *signal) raised() bool {
	select {
	case <-s.c:
		return true
	default:
		return false
	}
}

// soon waits for a short time.
func (s *signal) soon() {
	var turns spin.Turns
	for start := time.Now(); !s.raised(); turns.Yield() {
		if time.Since(start) > spinTime {
			s.parked.Store(true)
			return
		}
	}
}

// Names of the work of an executor besides its jobs, for errors.
const (
	initialization = "the initialization of the GPU"
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

// run reports whether the caller slept.
func (j *job) run() (slept bool) {
	if j.state.Load() == jobAbandoned {
		return false
	}
	err := j.do()
	if j.state.CompareAndSwap(0, jobDone) {
		j.err = err
		return j.done.raise()
	} else if err == nil && j.undo != nil {
		j.undo()
	}
	return false
}

// do runs a function on the thread and returns its error. If ctx ends first, it returns the cause; the
// function still runs, and then undo, if it succeeds. After end it returns closed.
func (x *executor) do(ctx context.Context, what string, closed error, do func() error, undo func()) error {
	j := &job{what: what, do: do, undo: undo, done: newSignal()}
	if !x.post(j) {
		return closed
	}
	return x.wait(ctx, j)
}

// wait waits for a job, as do.
func (x *executor) wait(ctx context.Context, j *job) error {
	j.done.soon()
	var err error
	select {
	case <-j.done.c:
		return j.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-x.failed:
		err = x.err
	}
	if j.state.CompareAndSwap(0, jobAbandoned) {
		return err
	}
	<-j.done.c
	return j.err
}

// hangs reports whether a call of the driver does not return.
func (x *executor) hangs() bool {
	select {
	case <-x.failed:
		return true
	default:
		return false
	}
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
	x.post(&job{what: what, do: func() error { do(); return nil }, done: newSignal()})
}

// nudge ends a wait of the executor for jobs.
func (x *executor) nudge() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
	x.nap.end()
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
