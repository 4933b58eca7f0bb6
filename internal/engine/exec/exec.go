// Package exec is the contract between the operations of a communicator and the
// executors that carry them out.
//
// An operation of the engine is a state machine: it has a sequence number, a
// fingerprint, a timeout and an outcome, and does not know how bytes move. An
// [Executor] moves them. The [Schedule] of a call names the executor and holds the plan
// that was compiled for it. An executor that exchanges frames with other ranks implements
// [Receiver].
//
// Methods that end in Locked are called with the lock of the communicator held, and
// keep it. They change state and do no input or output. The other methods are called
// without the lock, may take it, and block only where their documentation says so.
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

// A Schedule says how calls with the same parameters are carried out. Operations share
// it: it must not be changed once it is in use.
type Schedule struct {
	// Call is the fingerprint. The engine fills in Comm and Seq.
	Call wire.Call
	// Executor carries the call out, and Plan was compiled for it.
	Executor ID
	Plan     any
	// Channels is the number of parts into which the vector is cut, at least one. Over links the
	// parts run in parallel, in shared memory one after the other.
	Channels int
	Layout   Layout
	// Brief says that the call takes so little time that reading the clock would slow it down. Its
	// end is traced with the time of the engine's last tick.
	Brief bool
	// Pool lends the memory for Temp.
	Pool *bufpool.Pool
}

// Work is one call of a collective.
type Work struct {
	*Schedule
	// Data and Input are the buffers. Each begins with the chunk DataFirst or
	// InputFirst.
	Data, Input           []byte
	DataFirst, InputFirst int
	// Reduce makes dst = a op b. It may be nil if nothing is reduced.
	Reduce func(dst, a, b []byte)
	// Device, if not nil, says that the buffers are memory of a device, which only the executor knows to use. Others fail.
	Device any
	// Timeout is the longest time without progress; 0 means no limit.
	Timeout time.Duration
}

// Set copies from into w word by word. The caller has just written it so, and a wider load would
// stall until these stores have reached the cache.
func (w *Work) Set(from *Work) {
	w.Schedule, w.Reduce, w.Device, w.Timeout = from.Schedule, from.Reduce, from.Device, from.Timeout
	w.Data, w.DataFirst, w.Input, w.InputFirst = from.Data, from.DataFirst, from.Input, from.InputFirst
}

// An Op is the operation that an executor carries out.
type Op interface {
	// CompleteLocked ends the operation with success. The executor uses neither its
	// buffers nor the operation any more. Next it calls Wake or RecycleLocked, or returns
	// true from Execution.Run.
	CompleteLocked()
	// Wake wakes the goroutine in Wait.
	Wake()
	// RecycleLocked takes the place of Wake when the goroutine in Execution.Wait
	// completes the operation itself, and then returns Recycled.
	RecycleLocked()
	// Mismatched reports that a rank has made another call in place of this one.
	Mismatched(rank int)
	// Abort ends the communicator of the operation, because err keeps this rank from
	// doing its part.
	Abort(err error)
}

// An Executor carries out the operations of one communicator.
type Executor interface {
	// NewLocked returns an Execution. It carries out several operations, one after the other,
	// each of them as op.
	NewLocked(op Op) Execution
	// CloseLocked releases the resources of the executor. No execution runs any more.
	CloseLocked()
}

// An Execution carries out one operation at a time.
type Execution interface {
	// StartLocked begins the operation. Call and w are valid until it has ended.
	StartLocked(call *wire.Call, w *Work)
	// ReadyLocked is called once after StartLocked, under the same lock, when the frames that
	// had arrived before the operation began have been passed to it.
	ReadyLocked()
	// Run makes the progress that needs no other rank. It does not block. It reports whether it
	// has completed the operation itself; then it does not call Op.Wake.
	Run() (completed bool)
	// Wait is called by the goroutine that waits for the operation, unless Run has completed it.
	// It returns when the operation has completed, when ended has a value, or when ctx ends.
	Wait(ctx context.Context, ended <-chan struct{}) Outcome
	// NeedsLocked reports whether the operation cannot end without more from a rank.
	NeedsLocked(rank int) bool
	// WaitsForLocked returns the ranks that hold the operation up now.
	WaitsForLocked() []int
	// ProgressLocked returns a number that changes as the operation makes progress,
	// and whether this node is at work on it, so that it does not wait for others.
	ProgressLocked() (moved uint64, working bool)
	// InterruptLocked stops the operation, which fails. Release is called next.
	InterruptLocked()
	// Release blocks until nothing uses the buffers of an interrupted operation, and
	// withdraws grants.
	Release()
	// TraceLocked returns the progress of the operation; completed says that all of it is
	// done. It may be called until the operation is recycled or released.
	TraceLocked(completed bool) Trace
}

// A DeviceUser is an Execution that may use a device of this rank.
type DeviceUser interface {
	// OnDeviceLocked reports whether the device has to do something for the operation that other ranks may wait for. Unlike
	// the work of [Execution].ProgressLocked it counts for the timeout, but a rank is in no deadlock meanwhile.
	OnDeviceLocked() bool
}

// An Outcome is the reason why Wait returned.
type Outcome uint8

// The outcomes of Wait.
const (
	Cancelled Outcome = iota // ctx has ended
	Ended                    // ended had a value
	Recycled                 // the operation has completed, and belongs to later calls
)

// A Trace is the progress of an operation.
type Trace struct {
	Round, Rounds int   // the round under way, from 1 on, and the number of rounds
	Bytes         int64 // moved so far
	Received      int64 // of these, from other ranks
}
