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
	failing       // its executor releases the buffers
	ended
)

// An Op is a collective under way. Its fields are guarded by the lock of its Comm.
type Op struct {
	comm     *Comm
	exec     exec.Execution
	receiver exec.Receiver // exec, if it takes frames
	executor exec.ID
	call     *call
	work     exec.Work
	state    uint8
	err      error
	ended    chan struct{} // gets one value at the end, unless Start has completed the operation

	completed bool // by Start; read by Wait

	progressAt time.Time // when the watchdog last saw progress
	progress   uint64    // as measured then
	search     search

	working bool   // this node was at work on it at the last check of the watchdog
	worked  uint64 // its progress then
}

// Start begins a collective. Its buffers belong to the engine until [Op.Wait] has
// returned. It does not block.
func (c *Comm) Start(w *exec.Work) (*Op, error) {
	c.mu.Lock()
	if c.err != nil {
		fx, err := c.refuseLocked()
		c.mu.Unlock()
		c.carryOut(fx)
		return nil, err
	}
	op, fx := c.startLocked(w)
	c.mu.Unlock()
	c.carryOut(fx)
	op.completed = op.exec.Run()
	return op, nil
}

// startLocked begins a collective and passes it the frames that have arrived for it. The
// effects are nil unless the communicator has to end, or a frame is discarded.
func (c *Comm) startLocked(w *exec.Work) (op *Op, fx *effects) {
	c.seq++
	op = c.newOpLocked(w)
	if op.receiver != nil {
		c.engine.active.Add(1)
	}
	c.engine.begin(c.watchTick())
	op.stampLocked()
	op.exec.StartLocked(&op.call.Call, &op.work)
	if c.refuses != nil { // before a mismatch: other ranks may well have made another call
		fx = new(effects)
		c.revokeLeftLocked(fx, *c.refuses)
	}
	if len(c.early) > 0 { // mostly false: a length costs less than a look-up
		f := c.early[c.seq]
		delete(c.early, c.seq)
		for f != nil {
			next := f.Next
			_, fx = c.arriveLocked(f, fx)
			f = next
		}
	}
	if len(c.left) > 0 && c.err == nil {
		fx = fx.orNew()
		c.endIfGoneLocked(fx, op)
	}
	op.exec.ReadyLocked()
	return op, fx
}

// newOpLocked returns the operation with the last sequence number, recycled or new.
func (c *Comm) newOpLocked(w *exec.Work) (op *Op) {
	free := &c.free[w.Executor]
	if n := len(*free); n > 0 {
		op, *free = (*free)[n-1], (*free)[:n-1]
	} else {
		op = &Op{comm: c, executor: w.Executor, ended: make(chan struct{}, 1)}
		op.exec = c.executors[w.Executor].NewLocked(op)
		op.receiver, _ = op.exec.(exec.Receiver)
	}
	keep := callsKept
	if c.traced != nil {
		keep = callsTraced
	}
	op.work.Set(w)
	op.call = c.calls.put(op, c.seq, keep)
	op.call.Call = w.Call
	op.call.Comm, op.call.Seq = c.id, c.seq
	op.state, op.err = running, nil
	op.progressAt, op.progress, op.working = time.Time{}, 0, false
	return op
}

// Number returns the sequence number of the operation. It must be called before Wait.
func (op *Op) Number() uint64 { return op.call.Seq }

// endIfGoneLocked ends the communicator if a rank that has left made another call, or if an operation needs one. The operation
// does not need the rank if all its frames for it have arrived.
func (c *Comm) endIfGoneLocked(fx *effects, op *Op) {
	for rank := range c.left {
		if c.differsLocked(fx, rank) {
			return
		}
	}
	for rank, h := range c.left {
		if op.call.Seq > h.after && op.exec.NeedsLocked(rank) {
			c.revokeLeftLocked(fx, rank)
			return
		}
	}
}

// Wait blocks until the operation has ended, and returns its error. If ctx ends first, the
// communicator is revoked on all ranks, and Wait returns the cause. When Wait has returned,
// nothing uses the buffers of the operation, and the Op must not be used again.
func (op *Op) Wait(ctx context.Context) error {
	if !op.completed {
		var outcome exec.Outcome
		if _, limited := ctx.Deadline(); limited {
			outcome = op.awaitLimited(ctx)
		} else {
			outcome = op.exec.Wait(ctx, op.ended)
		}
		switch outcome {
		case exec.Recycled:
			return nil
		case exec.Cancelled:
			cause := op.cause(ctx)
			op.comm.CancelIf(func() bool { return op.state != ended }, cause)
			<-op.ended
			if _, another := op.err.(*DeadlineError); another { //nolint:errorlint // cause returns it unwrapped
				op.err = cause
			}
		}
	}
	err := op.err
	if err == nil {
		op.comm.mu.Lock()
		op.RecycleLocked()
		op.comm.mu.Unlock()
	}
	return err
}

// cause is [Comm.cause] of the operation.
func (op *Op) cause(ctx context.Context) error {
	c := op.comm
	c.mu.Lock()
	w, begun := wire.Wait{Kind: wire.WaitCollective, Call: op.call.Call}, op.call.begun
	if op.state == running {
		w.Peers = c.peersLocked(op.exec.WaitsForLocked()...)
	}
	c.mu.Unlock()
	return c.cause(ctx, begun, w)
}

// awaitLimited calls the Wait of the execution, and counts the goroutine: ctx has a deadline.
func (op *Op) awaitLimited(ctx context.Context) exec.Outcome {
	limited := &op.comm.limited // The operation may belong to a later call when Wait returns.
	limited.Add(1)
	defer limited.Add(-1)
	return op.exec.Wait(ctx, op.ended)
}

// RecycleLocked implements [exec.Op].
func (op *Op) RecycleLocked() {
	op.work = exec.Work{}
	free := &op.comm.free[op.executor]
	*free = append(*free, op)
}

// CompleteLocked implements [exec.Op].
func (op *Op) CompleteLocked() { op.endLocked() }

// Wake implements [exec.Op].
func (op *Op) Wake() { op.ended <- struct{}{} }

// endLocked removes the operation from its communicator.
func (op *Op) endLocked() {
	c := op.comm
	op.traceLocked()
	op.countLocked()
	c.calls.end(op.call)
	op.state = ended
	if op.receiver != nil {
		c.engine.active.Add(-1)
	}
	if c.err != nil {
		c.draining = c.draining && c.calls.live > 0
		c.drained.Broadcast()
	}
}

// failLocked begins to end the operation with err. It reports whether abandon has to be
// called: not if the operation is failing, or has ended.
func (op *Op) failLocked(err error) bool {
	if op.state != running {
		return false
	}
	op.traceFailureLocked()
	op.state, op.err = failing, err
	op.exec.InterruptLocked()
	return true
}

// abandon waits until nothing uses the buffers of a failing operation, and ends it.
func (op *Op) abandon() {
	op.exec.Release()
	op.comm.mu.Lock()
	op.endLocked()
	op.comm.mu.Unlock()
	op.Wake()
}

// Mismatched implements [exec.Op]. The other rank answers a query with the mismatch. If it leaves, it tells its
// last call.
func (op *Op) Mismatched(rank int) {
	c := op.comm
	c.update(func(fx *effects) {
		if op.state != running {
			return
		}
		if c.endIfGoneLocked(fx, op); !c.hasEndedLocked() {
			c.query(fx, rank, op.call.Call)
		}
	})
}

// Abort implements [exec.Op].
func (op *Op) Abort(err error) { op.comm.CancelIf(nil, err) }
