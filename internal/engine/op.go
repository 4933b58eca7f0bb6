package engine

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/wire"
)

// The states of an operation: running → ended, or running → failing → ended.
const (
	running uint8 = iota
	failing       // its buffers are being taken back
	ended
)

// An Op is a collective under way, whichever executor carries it out. Its fields are
// guarded by the lock of its Comm.
type Op struct {
	comm     *Comm
	exec     exec.Execution
	receiver exec.Receiver // exec, if it takes frames
	executor exec.ID
	call     wire.Call
	work     exec.Work
	state    uint8
	err      error
	ended    chan struct{} // gets one value at the end

	begun     int64 // by the clock of the engine
	isTimed   bool  // the end is worth a look at the clock
	failedAt  exec.Trace
	blockedBy int // a rank that it was waiting for when it failed, or -1

	moved    time.Time // when the watchdog last saw progress
	progress uint64    // what it measured then
	search   search
}

// Start begins a collective. Its buffers belong to the engine until Wait has
// returned.
func (c *Comm) Start(w *exec.Work) (*Op, error) {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, &EndedError{c.err}
	}
	op, fx := c.startLocked(w)
	c.mu.Unlock()
	c.carryOut(fx)
	op.exec.Run()
	return op, nil
}

// startLocked begins a collective and passes it the frames that have arrived for it. The
// effects are nil unless the communicator has to end, or a frame is discarded.
func (c *Comm) startLocked(w *exec.Work) (op *Op, fx *effects) {
	c.seq++
	op = c.newOpLocked(w)
	keep := callsKept
	if c.about != nil {
		keep = callsTraced
	}
	c.calls.put(op, keep)
	c.engine.begin()
	op.stampLocked()
	op.exec.StartLocked(&op.call, &op.work)
	if c.refuses != nil { // before a mismatch: other ranks may well have made another call
		fx = new(effects)
		c.revokeLeftLocked(fx, c.refuses)
	}
	if f := c.early[c.seq]; f != nil {
		delete(c.early, c.seq)
		for f != nil {
			next := f.Next
			_, fx = c.arriveLocked(f, fx)
			f = next
		}
	}
	if gone := c.goneLocked(op); gone != nil && c.err == nil {
		fx = fx.orNew()
		c.revokeLeftLocked(fx, gone)
	}
	return op, fx
}

// newOpLocked takes an operation of the executor from the free ones, or makes one.
func (c *Comm) newOpLocked(w *exec.Work) (op *Op) {
	free := &c.free[w.Executor]
	if n := len(*free); n > 0 {
		op, *free = (*free)[n-1], (*free)[:n-1]
	} else {
		op = &Op{comm: c, executor: w.Executor, ended: make(chan struct{}, 1)}
		op.exec = c.executors[w.Executor].NewLocked(op)
		op.receiver, _ = op.exec.(exec.Receiver)
	}
	op.work.Set(w)
	op.call = w.Call
	op.call.Comm, op.call.Seq = c.id, c.seq
	op.state, op.err = running, nil
	op.moved, op.progress = time.Time{}, 0
	return op
}

// Number is the sequence number of the operation. It is asked before Wait.
func (op *Op) Number() uint64 { return op.call.Seq }

// goneLocked returns the error of an operation that needs a rank that has left, or nil.
// What that rank had sent before it left may be all that is needed of it.
func (c *Comm) goneLocked(op *Op) *PeerError {
	for rank, after := range c.left {
		if op.call.Seq > after && op.exec.NeedsLocked(rank) {
			return leftError(rank)
		}
	}
	return nil
}

// Wait waits for the end of the operation. If ctx ends first the communicator
// is revoked on all ranks. When Wait returns nothing uses the buffers of the
// operation any more, and the Op must not be used again.
func (op *Op) Wait(ctx context.Context) error {
	switch op.exec.Wait(ctx, op.ended) {
	case exec.Recycled:
		return nil
	case exec.Cancelled:
		op.comm.CancelIf(func() bool { return op.state != ended }, context.Cause(ctx))
		<-op.ended
	}
	err := op.err
	if err == nil {
		op.comm.mu.Lock()
		op.RecycleLocked()
		op.comm.mu.Unlock()
	}
	return err
}

// RecycleLocked implements [exec.Op]: an operation that has ended well is used again.
func (op *Op) RecycleLocked() {
	op.work = exec.Work{}
	free := &op.comm.free[op.executor]
	*free = append(*free, op)
}

// CompleteLocked implements [exec.Op].
func (op *Op) CompleteLocked() { op.endLocked() }

// Wake implements [exec.Op].
func (op *Op) Wake() { op.ended <- struct{}{} }

// endLocked takes the operation off its communicator.
func (op *Op) endLocked() {
	c := op.comm
	op.recordLocked(c.calls.end(op))
	op.state = ended
	c.engine.active.Add(-1)
	if c.err != nil {
		c.drained.Broadcast()
	}
}

// failLocked begins to end the operation with err. It reports whether abandon has to be
// called: otherwise the operation is failing, or has ended, already.
func (op *Op) failLocked(err error) bool {
	if op.state != running {
		return false
	}
	op.traceFailureLocked()
	op.state, op.err = failing, err
	op.exec.InterruptLocked()
	return true
}

// abandon takes the buffers of a failing operation back and ends it.
func (op *Op) abandon() {
	op.exec.Release()
	op.comm.mu.Lock()
	op.endLocked()
	op.comm.mu.Unlock()
	op.Wake()
}

// Mismatched implements [exec.Op]. The other rank will say so itself when it is asked
// where it is, unless it has left.
func (op *Op) Mismatched(rank int) {
	c, fx := op.comm, new(effects)
	c.mu.Lock()
	if op.state == running {
		if gone := c.goneLocked(op); gone != nil {
			c.revokeLeftLocked(fx, gone)
		} else {
			fx.probes = append(fx.probes, probe{rank, op.call})
		}
	}
	c.mu.Unlock()
	c.carryOut(fx)
}

// Abort implements [exec.Op].
func (op *Op) Abort(err error) { op.comm.CancelIf(nil, err) }
