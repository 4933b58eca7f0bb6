package shmexec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/wire"
)

// An Executor executes the collectives of a communicator in shared memory, one after the other.
// Each runs on the goroutine that waits for it: to pass it to another goroutine would take
// longer than many collectives do.
type Executor struct {
	memory *Memory
	mu     *sync.Mutex // of the communicator
	idle   sync.Cond   // signaled when a failed operation no longer uses the memory
	pieces uint32      // of all started operations
	last   *Execution  // the last started operation, until it ends
}

// Executor returns the executor of the communicator with this lock. It owns the Memory from now
// on.
func (m *Memory) Executor(mu *sync.Mutex) exec.Executor {
	return &Executor{memory: m, mu: mu, idle: sync.Cond{L: mu}}
}

// NewLocked implements [exec.Executor].
func (x *Executor) NewLocked(op exec.Op) exec.Execution {
	return &Execution{executor: x, op: op}
}

// CloseLocked implements [exec.Executor].
func (x *Executor) CloseLocked() { x.memory.close() }

// An Execution executes one operation. The lock of the communicator guards its fields, except for
// Vectors and the parameters of the call, which belong to the goroutine in Wait.
type Execution struct {
	exec.Vectors
	executor *Executor
	op       exec.Op

	// Most calls have the schedule of the one before.
	schedule *exec.Schedule
	program  *Program
	shape    uint64 // see shape
	stride   int    // the distance between two payloads of a piece
	room     int    // the length of all of them, with chunks as long as the longest in any piece on any rank

	print  uint32                 // the fingerprint of the call
	reduce func(dst, a, b []byte) // dst = a op b

	mark       uint32        // the number of pieces of a rank that has finished this operation
	before     chan struct{} // closed when the operation before this one has ended; nil without one
	next       *Execution    // the operation that waits for this one
	mismatched int           // the rank that has made another call, plus 1
	unmet      []int         // the rank that a wait has failed for
	busy       int           // 1 while the operation uses the memory, or is about to
	stopped    atomic.Bool   // the operation has failed; set with the lock
}

// StartLocked implements [exec.Execution]. Without an operation before it, the operation
// occupies the memory from here on.
func (r *Execution) StartLocked(call *wire.Call, w *exec.Work) {
	x := r.executor
	if r.schedule != w.Schedule {
		r.prepare(call, w.Schedule)
	}
	p := r.program
	r.Set(w, p.Chunks)
	r.TakeTemp(p.TempLo, p.TempHi, true)
	r.reduce, r.print = w.Reduce, uint32(mix(r.shape, call.Seq)>>32)
	x.pieces += uint32(r.Channels)
	r.mark, r.busy, r.before = x.pieces, 1, nil
	if x.last != nil {
		r.before, r.busy = make(chan struct{}), 0
		x.last.next = r
	}
	x.last = r
}

// prepare sets the fields that all calls with a schedule share.
func (r *Execution) prepare(call *wire.Call, s *exec.Schedule) {
	p, most := s.Plan.(*Program), r.executor.memory.pieceBytes
	r.schedule, r.program, r.shape = s, p, shape(call)
	r.stride = p.stride(s.Layout.Unit(p.Chunks, s.Channels))
	if r.room = r.stride * p.Units; r.room > most {
		panic(fmt.Sprintf("shmexec: a piece of %d bytes, with room for %d", r.room, most))
	}
	if s.Channels > 1 && !p.Single {
		panic("shmexec: a vector in pieces for a plan that cannot be cut")
	}
}

// shape returns a hash of a call without its sequence number. Different calls have the same hash, and
// then the same fingerprint in shared memory, with probability 2^-32.
func shape(c *wire.Call) uint64 {
	h := mix(c.Comm, uint64(c.Kind)|uint64(c.Type)<<8|uint64(c.Op)<<16|uint64(c.Plan)<<24|uint64(c.Root)<<32)
	return mix(mix(h, c.Count), uint64(c.Channels))
}

// mix hashes two numbers into one, after Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014.
func mix(a, b uint64) uint64 {
	a += b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	a = (a ^ a>>30) * 0xbf58476d1ce4e5b9
	a = (a ^ a>>27) * 0x94d049bb133111eb
	return a ^ a>>31
}

// ReadyLocked implements [exec.Execution]. No frames arrive for the operation.
func (r *Execution) ReadyLocked() {}

// Run implements [exec.Execution]. All work is done in Wait.
func (r *Execution) Run() (completed bool) { return false }

// Wait implements [exec.Execution]. It executes the operation, unless that fails before its turn.
func (r *Execution) Wait(ctx context.Context, ended <-chan struct{}) exec.Outcome {
	if (r.before == nil || r.takeTurn(ctx)) && r.runInMemory(ctx) {
		return exec.Recycled
	}
	select {
	case <-ended:
		return exec.Ended
	case <-ctx.Done():
		return exec.Cancelled
	}
}

// takeTurn waits for the operation before this one. Without one, the operation occupies the
// memory from its start: run stops before the first post if it has failed.
func (r *Execution) takeTurn(ctx context.Context) bool {
	select {
	case <-r.before:
	case <-ctx.Done():
		return false
	}
	r.executor.mu.Lock()
	defer r.executor.mu.Unlock()
	if r.stopped.Load() {
		return false
	}
	r.busy++
	return true
}

// errPanicked ends an operation after its reduction function has panicked or called
// runtime.Goexit.
var errPanicked = errors.New("the reduction function did not return")

// runInMemory executes the operation, and reports whether it has completed.
func (r *Execution) runInMemory(ctx context.Context) (completed bool) {
	if r.reduce != nil { // It may be a function of the user.
		return r.runReduction(ctx)
	}
	return r.finish(r.executor.memory.run(ctx, r))
}

func (r *Execution) runReduction(ctx context.Context) (completed bool) {
	err := errPanicked
	defer func() { completed = r.finish(err) }()
	err = r.executor.memory.run(ctx, r)
	return completed
}

// finish ends the use of the memory after run has returned err.
func (r *Execution) finish(err error) (completed bool) {
	x := r.executor
	x.mu.Lock()
	r.busy--
	if err == nil && !r.stopped.Load() {
		r.op.CompleteLocked()
		r.endLocked()
		r.op.RecycleLocked()
		x.mu.Unlock()
		return true
	}
	if rank := x.memory.waiting(); rank >= 0 {
		r.unmet = []int{rank}
	}
	x.memory.setAwaited(awaited{})
	failing := r.stopped.Load()
	mismatch, isMismatch := errors.AsType[*MismatchError](err)
	switch {
	case failing:
		x.idle.Broadcast()
	case isMismatch:
		r.mismatched = mismatch.Rank + 1
	}
	x.mu.Unlock()
	if failing {
		return false
	}
	_, noMemory := errors.AsType[*MemoryError](err)
	_, noArea := errors.AsType[*AttachError](err)
	switch {
	case noMemory, noArea, errors.Is(err, errPanicked):
		r.op.Abort(err)
	case isMismatch:
		r.op.Mismatched(mismatch.Rank)
	}
	return false
}

// endLocked lets the next operation begin.
func (r *Execution) endLocked() {
	r.Vectors.Release()
	r.reduce = nil
	if next := r.next; next != nil {
		r.next = nil
		close(next.before)
	}
	if r.executor.last == r {
		r.executor.last = nil
	}
}

// NeedsLocked implements [exec.Execution]. A rank is needed until it has finished the operation,
// and if it has finished another call in its place.
func (r *Execution) NeedsLocked(rank int) bool {
	m := r.executor.memory
	if !m.has(rank) && !slices.Contains(r.program.needs, rank) {
		return false // The ranks that read its area need it.
	}
	return r.mismatched == rank+1 || !m.hasFinished(rank, r.mark) || r.busy > 0 && m.isStuck(rank, r.mark)
}

// WaitsForLocked implements [exec.Execution].
func (r *Execution) WaitsForLocked() []int {
	if rank := r.executor.memory.waiting(); rank >= 0 && r.busy > 0 {
		return []int{rank}
	}
	return r.unmet
}

// ProgressLocked implements [exec.Execution]. This node works on the operation, or on an earlier
// one, unless it waits for a counter.
func (r *Execution) ProgressLocked() (moved uint64, working bool) {
	m := r.executor.memory
	return m.progress(), m.waiting() < 0
}

// InterruptLocked implements [exec.Execution].
func (r *Execution) InterruptLocked() {
	r.stopped.Store(true)
	r.executor.memory.interrupt()
}

// poll returns an error when the operation has failed or its context has ended.
func (r *Execution) poll(ctx context.Context) error {
	if r.stopped.Load() {
		return errStopped
	}
	return ctx.Err()
}

// Release implements [exec.Execution].
func (r *Execution) Release() {
	r.executor.mu.Lock()
	defer r.executor.mu.Unlock()
	for r.busy > 0 {
		r.executor.idle.Wait()
	}
	r.endLocked()
}

// TraceLocked implements [exec.Execution]. Each piece of the vector counts as a round.
func (r *Execution) TraceLocked(completed bool) exec.Trace {
	n := r.Channels
	if completed {
		return exec.Trace{Round: n, Rounds: n, Bytes: r.Size()}
	}
	left := min(r.executor.memory.remaining(r.mark), n)
	bytes := r.Size() * int64(n-left) / int64(n)
	return exec.Trace{Round: min(n, n-left+1), Rounds: n, Bytes: bytes, Received: bytes}
}
