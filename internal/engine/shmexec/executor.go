package shmexec

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/wire"
)

// An Executor carries out the collectives of a communicator on a Board, one after the
// other, on the goroutines that wait for them: to hand an operation over would take
// longer than many operations do.
type Executor struct {
	board  *Board
	mu     *sync.Mutex // of the communicator
	idle   sync.Cond   // a failed operation has left the board
	pieces uint32      // of all operations that were begun
	last   *Execution  // the last that was begun, until it ends
}

// Executor makes the executor of a communicator with this lock. It takes the board
// over.
func (b *Board) Executor(mu *sync.Mutex) exec.Executor {
	return &Executor{board: b, mu: mu, idle: sync.Cond{L: mu}}
}

// NewLocked implements [exec.Executor].
func (x *Executor) NewLocked(op exec.Op) exec.Execution {
	r := &Execution{executor: x, op: op}
	r.work.poll, r.work.stopped, r.work.buffers = r.poll, &r.stopped, &r.Vectors
	return r
}

// CloseLocked implements [exec.Executor].
func (x *Executor) CloseLocked() { x.board.Leave() }

// An Execution carries out one operation. Its fields are guarded by the lock of the
// communicator, except for the work, which belongs to the goroutine in Wait.
type Execution struct {
	exec.Vectors
	executor   *Executor
	op         exec.Op
	work       work
	mark       uint32        // the count of pieces of a rank that has finished this operation
	before     chan struct{} // closed when the operation before has ended; nil if it had
	next       *Execution    // the operation that waits for this one
	mismatched int           // the rank that has made another call, plus 1
	busy       int           // 1 while the board is, or is about to be, at work on it
	failing    bool
	stopped    atomic.Bool // failing, to be read without the lock
}

// StartLocked implements [exec.Execution]. An operation that has none before it
// occupies the board from here on.
func (r *Execution) StartLocked(call *wire.Call, w *exec.Work) {
	x, p := r.executor, w.Plan.(*Program)
	if w.Channels > 1 && !p.Single {
		panic("shmexec: a vector in pieces for a plan that cannot be cut")
	}
	r.Set(w, p.Chunks)
	r.TakeTemp(p.TempLo, p.TempHi, true)
	r.work.program, r.work.reduce = p, w.Reduce
	r.work.pieces, r.work.elem, r.work.unit = r.Channels, r.Elem, r.Unit(r.Chunks, r.Channels)
	r.work.print = fingerprint(call)
	x.pieces += uint32(r.Channels)
	r.mark, r.busy, r.failing = x.pieces, 1, false
	r.before, r.next, r.mismatched = nil, nil, 0
	if x.last != nil {
		r.before, r.busy = make(chan struct{}), 0
		x.last.next = r
	}
	x.last = r
}

// fingerprint returns a number that differs, but for one case in four billion, if
// calls do.
func fingerprint(c *wire.Call) uint32 {
	h := mix(c.Comm, c.Seq)
	h = mix(h, uint64(c.Kind)|uint64(c.Type)<<8|uint64(c.Op)<<16|uint64(c.Plan)<<24|uint64(c.Root)<<32)
	h = mix(h, c.Count)
	h = mix(h, uint64(c.Channels))
	return uint32(h >> 32)
}

// mix spreads the bits of two numbers over all bits of one, after Steele, Lea
// and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
func mix(a, b uint64) uint64 {
	a += b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	a = (a ^ a>>30) * 0xbf58476d1ce4e5b9
	a = (a ^ a>>27) * 0x94d049bb133111eb
	return a ^ a>>31
}

// Run implements [exec.Execution]. Everything happens in Wait.
func (r *Execution) Run() {}

// Wait implements [exec.Execution]: it carries the operation out, unless it fails
// before its turn comes.
func (r *Execution) Wait(ctx context.Context, ended <-chan struct{}) exec.Outcome {
	if (r.before == nil || r.takeTurn(ctx)) && r.play(ctx) {
		return exec.Recycled
	}
	select {
	case <-ended:
		return exec.Ended
	case <-ctx.Done():
		return exec.Cancelled
	}
}

// takeTurn waits for the operation before. An operation that has none before it
// occupies the board from its start: Run ends it before it posts anything if it has
// failed.
func (r *Execution) takeTurn(ctx context.Context) bool {
	select {
	case <-r.before:
	case <-ctx.Done():
		return false
	}
	r.executor.mu.Lock()
	defer r.executor.mu.Unlock()
	if r.failing {
		return false
	}
	r.busy++
	return true
}

// errPanicked ends an operation whose function has panicked, or has ended its
// goroutine.
var errPanicked = errors.New("the reduction function did not return")

// play carries the operation out on the board. It reports whether the operation has
// completed.
func (r *Execution) play(ctx context.Context) (completed bool) {
	err := errPanicked
	defer func() { completed = r.played(err) }()
	err = r.executor.board.run(ctx, &r.work)
	return completed
}

// played takes the operation off the board after run has returned err.
func (r *Execution) played(err error) (completed bool) {
	x := r.executor
	x.mu.Lock()
	r.busy--
	failing := r.failing
	mismatch, isMismatch := errors.AsType[*MismatchError](err)
	switch {
	case failing:
		x.idle.Broadcast()
	case err == nil:
		r.op.CompleteLocked()
		r.endLocked()
		r.op.RecycleLocked()
		completed = true
	case isMismatch:
		r.mismatched = mismatch.Rank + 1
	}
	x.mu.Unlock()
	_, noMemory := errors.AsType[*MemoryError](err)
	switch {
	case err == errPanicked || noMemory:
		r.op.Abort(err)
	case isMismatch && !failing:
		r.op.Mismatched(mismatch.Rank)
	}
	return completed
}

// endLocked lets the operation after this one begin.
func (r *Execution) endLocked() {
	r.Vectors.Release()
	r.work.reduce = nil
	if next := r.next; next != nil {
		r.next = nil
		close(next.before)
	}
	if r.executor.last == r {
		r.executor.last = nil
	}
}

// NeedsLocked implements [exec.Execution]. A rank is needed as long as it has not
// finished the operation, and if it has finished another call in its place.
func (r *Execution) NeedsLocked(rank int) bool {
	b := r.executor.board
	return r.mismatched == rank+1 || !b.Finished(rank, r.mark) || r.busy > 0 && b.Stuck(rank, r.mark)
}

// WaitsForLocked implements [exec.Execution].
func (r *Execution) WaitsForLocked() []int {
	if rank := r.executor.board.Waiting(); rank >= 0 && r.busy > 0 {
		return []int{rank}
	}
	return nil
}

// ProgressLocked implements [exec.Execution]. This node is at work on the operation, or
// on one before it, unless the board waits.
func (r *Execution) ProgressLocked() (moved uint64, working bool) {
	b := r.executor.board
	return b.Progress(), b.Waiting() < 0
}

// InterruptLocked implements [exec.Execution].
func (r *Execution) InterruptLocked() {
	r.failing = true
	r.stopped.Store(true)
	r.executor.board.Interrupt()
}

// poll ends a wait on the board when the operation has failed or its context has ended.
func (r *Execution) poll(ctx context.Context) error {
	if r.stopped.Load() {
		return ErrStopped
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

// TraceLocked implements [exec.Execution]: pieces of the vector count as rounds.
func (r *Execution) TraceLocked(completed bool) exec.Trace {
	n := r.Channels
	if completed {
		return exec.Trace{Round: n, Rounds: n, Bytes: r.Size()}
	}
	left := min(r.executor.board.Left(r.mark), n)
	return exec.Trace{Round: min(n, n-left+1), Rounds: n, Bytes: r.Size() * int64(n-left) / int64(n)}
}
