// Package exec is the contract between the operations of a communicator and the
// executors that carry them out.
//
// An operation of the engine is a state machine: it has a sequence number, a
// fingerprint, a timeout and an outcome, and does not know how bytes move. An
// Executor moves them. The Recipe of a call names the executor and holds the plan
// that was compiled for it.
//
// Methods that end in Locked are called with the lock of the communicator held, and
// keep it. They change state and do no input or output. The other methods are called
// without the lock, may take it, and may block only where that is said.
package exec

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/wire"
)

// An ID names an executor of a communicator.
type ID uint8

// The executors of the engine. Others may use larger numbers.
const (
	Links  ID = iota // moves bytes over links
	Shared           // moves them through shared memory
)

// A Recipe says how collectives that are alike are carried out. Operations share
// it: it must not be changed once it is in use.
type Recipe struct {
	// Call is the fingerprint. The engine fills in Comm and Seq.
	Call wire.Call
	// Executor carries the call out, and Plan was compiled for it.
	Executor ID
	Plan     any
	// Channels is into how many parts the vector is cut, at least one. Over links the
	// parts run side by side, in shared memory one after the other.
	Channels int
	Layout   Layout
	// Brief says that the call takes less time than a look at the clock would add, so
	// that its end is recorded with the time of the engine's last tick.
	Brief bool
	// Pool lends the memory for Temp.
	Pool *bufpool.Pool
}

// Work is one collective to carry out.
type Work struct {
	*Recipe
	// Data and Input are the buffers. Each begins with the chunk DataFirst or
	// InputFirst.
	Data, Input           []byte
	DataFirst, InputFirst int
	// Reduce makes dst = a op b. It may be nil if nothing is reduced.
	Reduce func(dst, a, b []byte)
	// Timeout is the longest time without progress; 0 means no limit.
	Timeout time.Duration
}

// Set copies from into w word by word: it has just been written so, and to read several
// words at once would have to wait until they have arrived in the cache.
func (w *Work) Set(from *Work) {
	w.Recipe, w.Reduce, w.Timeout = from.Recipe, from.Reduce, from.Timeout
	w.Data, w.DataFirst, w.Input, w.InputFirst = from.Data, from.DataFirst, from.Input, from.InputFirst
}

// An Op is what an executor sees of the operation that it carries out.
type Op interface {
	// CompleteLocked ends the operation with success. The executor uses neither its
	// buffers nor the operation any more, except for Wake or RecycleLocked, one of
	// which it calls next.
	CompleteLocked()
	// Wake wakes the goroutine in Wait.
	Wake()
	// RecycleLocked takes the place of Wake when the goroutine in Execution.Wait
	// completes the operation itself, and then returns Recycled.
	RecycleLocked()
	// Mismatched says that a rank carries out another call at this place.
	Mismatched(rank int)
	// Abort ends the communicator of the operation, because err keeps this rank from
	// doing its part.
	Abort(err error)
}

// An Executor carries out the operations of one communicator.
type Executor interface {
	// NewLocked makes an Execution for the operations that op stands for, one after
	// the other.
	NewLocked(op Op) Execution
	// CloseLocked gives up what the executor holds. No execution runs any more.
	CloseLocked()
}

// An Execution carries out one operation at a time.
type Execution interface {
	// StartLocked begins the operation. Call and w are valid until it has ended.
	StartLocked(call *wire.Call, w *Work)
	// Run does what can be done at once. It does not block.
	Run()
	// Wait is called by the goroutine that waits for the operation. It returns when
	// the operation has completed, when ended has a value, or when ctx ends.
	Wait(ctx context.Context, ended <-chan struct{}) Outcome
	// NeedsLocked reports whether the operation cannot end without more from a rank.
	NeedsLocked(rank int) bool
	// WaitsForLocked returns the ranks that hold the operation up now.
	WaitsForLocked() []int
	// ProgressLocked returns a number that changes as the operation makes progress,
	// and whether this node is at work on it, so that it does not wait for others.
	ProgressLocked() (moved uint64, working bool)
	// InterruptLocked says that the operation fails: nothing more is begun. Release is
	// called next.
	InterruptLocked()
	// Release blocks until nothing uses the buffers of an interrupted operation, and
	// takes back what was granted to others.
	Release()
	// TraceLocked says how far the operation has come. It may be called until the
	// operation is recycled or released; completed says that all of it is done.
	TraceLocked(completed bool) Trace
}

// An Outcome is why Wait returned.
type Outcome uint8

// The outcomes of Wait.
const (
	Cancelled Outcome = iota // ctx has ended
	Ended                    // ended had a value
	Recycled                 // the operation has completed, and belongs to later calls
)

// A Trace is how far an operation has come.
type Trace struct {
	Round, Rounds int   // the round that is under way, from 1 on, and how many there are
	Bytes         int64 // that were moved
}
