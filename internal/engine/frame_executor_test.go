package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A frameExecutor adds the vectors of all ranks: each rank sends its vector to every other
// one as a single frame. It knows no plan.
type frameExecutor struct {
	rank  int
	links []*link.Link
	mu    *sync.Mutex
	idle  sync.Cond
}

func newFrameExecutor(c *Comm) func(mu *sync.Mutex) exec.Executor {
	return func(mu *sync.Mutex) exec.Executor {
		return &frameExecutor{rank: c.rank, links: c.Links(), mu: mu, idle: sync.Cond{L: mu}}
	}
}

func (x *frameExecutor) NewLocked(op exec.Op) exec.Execution { return &frameExecution{x: x, op: op} }
func (x *frameExecutor) CloseLocked()                        {}

type frameExecution struct {
	x       *frameExecutor
	op      exec.Op
	call    *wire.Call
	work    *exec.Work
	has     []bool        // by rank: its frame has arrived, or it is this rank
	held    []*exec.Frame // arrived before Run
	sum     []byte
	missing int // frames, and the sends of Run
	busy    int // goroutines at work
	running bool
	stopped bool
}

func (r *frameExecution) StartLocked(call *wire.Call, w *exec.Work) {
	n := len(r.x.links)
	r.call, r.work, r.has, r.held, r.missing = call, w, make([]bool, n), nil, n
	r.has[r.x.rank], r.running, r.stopped, r.busy = true, false, false, 1
	r.sum = append(r.sum[:0], w.Data...)
}

func (r *frameExecution) ArriveLocked(rank int, f *exec.Frame) (exec.Disposition, error) {
	switch {
	case r.stopped:
		return exec.Discard, nil
	case r.has[rank] || f.Kind != exec.Step || len(f.Payload) != len(r.work.Data):
		return exec.Discard, fmt.Errorf("frame of kind %d with %d bytes from rank %d", f.Kind, len(f.Payload), rank)
	}
	r.has[rank] = true
	if !r.running {
		f.HoldLocked()
		r.held = append(r.held, f)
		return exec.Hold, nil
	}
	r.busy++
	return exec.Receive, nil
}

// Receive adds a vector. Frames are added under the lock, which is simple and slow.
func (r *frameExecution) Receive(f *exec.Frame) {
	f.ReturnCredit()
	r.x.mu.Lock()
	r.addLocked(f)
	if r.finish() {
		r.op.Wake()
	}
}

func (r *frameExecution) PeersLocked() (ranks []int) {
	for rank := range r.x.links {
		if rank != r.x.rank {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

func (r *frameExecution) addLocked(f *exec.Frame) {
	kernel.Reducer(kernel.Int32, kernel.Sum)(r.sum, r.sum, f.Payload)
	f.ReleaseLocked()
	r.missing--
}

// finish ends the work of a goroutine, and releases the lock. It reports whether the operation has
// completed.
func (r *frameExecution) finish() (completed bool) {
	r.busy--
	completed = r.missing == 0 && r.busy == 0 && !r.stopped
	if completed {
		copy(r.work.Data, r.sum)
		r.op.CompleteLocked()
	}
	r.x.idle.Broadcast()
	r.x.mu.Unlock()
	return completed
}

func (r *frameExecution) ReadyLocked() {}

func (r *frameExecution) Run() (completed bool) {
	data := r.work.Data
	for rank, l := range r.x.links {
		if rank != r.x.rank {
			if !l.Credit().Take(wire.Collectives, len(data)) {
				panic("no credit: the vectors of the tests are shorter than that of a link")
			}
			l.SendStep(wire.Step{Call: *r.call}, data)
		}
	}
	r.x.mu.Lock()
	r.running = true
	r.missing--
	held := r.held
	r.held = nil
	r.x.mu.Unlock()
	for _, f := range held {
		f.ReturnCredit()
	}
	r.x.mu.Lock()
	for _, f := range held {
		r.addLocked(f)
	}
	return r.finish()
}

func (r *frameExecution) Wait(ctx context.Context, ended <-chan struct{}) exec.Outcome {
	select {
	case <-ended:
		return exec.Ended
	case <-ctx.Done():
		return exec.Cancelled
	}
}

func (r *frameExecution) NeedsLocked(rank int) bool { return !r.has[rank] }

func (r *frameExecution) WaitsForLocked() (ranks []int) {
	for rank, has := range r.has {
		if !has {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

func (r *frameExecution) ProgressLocked() (uint64, bool) { return uint64(r.missing), r.busy > 0 }

func (r *frameExecution) InterruptLocked() { r.stopped = true }

func (r *frameExecution) Release() {
	r.x.mu.Lock()
	defer r.x.mu.Unlock()
	for r.busy > 0 {
		r.x.idle.Wait()
	}
}

func (r *frameExecution) TraceLocked(bool) exec.Trace {
	return exec.Trace{Round: 1, Rounds: 1, Bytes: int64(len(r.work.Data))}
}
