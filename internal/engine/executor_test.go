package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// testID names the executor of these tests.
const testID exec.ID = 7

// A meeting is where the ranks of a process hand in their vectors of one collective.
type meeting struct {
	vectors [][]byte
	missing int
	done    chan struct{} // closed when all vectors hold the sum
}

// meetings are those of the ranks of a communicator, by sequence number.
type meetings struct {
	mu   sync.Mutex
	size int
	by   map[uint64]*meeting
}

func newMeetings(size int) *meetings { return &meetings{size: size, by: make(map[uint64]*meeting)} }

// enter hands in the vector of a rank. The last one adds all of them.
func (m *meetings) enter(seq uint64, rank int, vector []byte) *meeting {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.by[seq]
	if at == nil {
		at = &meeting{vectors: make([][]byte, m.size), missing: m.size, done: make(chan struct{})}
		m.by[seq] = at
	}
	at.vectors[rank] = vector
	if at.missing--; at.missing == 0 {
		add := kernel.Reducer(kernel.Int32, kernel.Sum)
		for _, v := range at.vectors[1:] {
			add(at.vectors[0], at.vectors[0], v)
		}
		for _, v := range at.vectors[1:] {
			copy(v, at.vectors[0])
		}
		close(at.done)
	}
	return at
}

// missingRanks returns the ranks that have not handed in anything.
func (m *meetings) missingRanks(seq uint64) (ranks []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for rank := range m.size {
		if at := m.by[seq]; at == nil || at.vectors[rank] == nil {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// A callExecutor carries collectives out by calling a Go function: it knows neither
// links nor shared memory, and no plan.
type callExecutor struct {
	meetings *meetings
	rank     int
	mu       *sync.Mutex
}

func (x *callExecutor) NewLocked(op exec.Op) exec.Execution { return &callExecution{x: x, op: op} }
func (x *callExecutor) CloseLocked()                        {}

type callExecution struct {
	x       *callExecutor
	op      exec.Op
	call    *wire.Call
	work    *exec.Work
	meeting *meeting
	stopped bool
}

func (r *callExecution) StartLocked(call *wire.Call, w *exec.Work) {
	r.call, r.work, r.stopped = call, w, false
}

func (r *callExecution) ReadyLocked() {}

func (r *callExecution) Run() (completed bool) {
	r.meeting = r.x.meetings.enter(r.call.Seq, r.x.rank, r.work.Data)
	return false
}

func (r *callExecution) Wait(ctx context.Context, ended <-chan struct{}) exec.Outcome {
	select {
	case <-r.meeting.done:
	case <-ended:
		return exec.Ended
	case <-ctx.Done():
		return exec.Cancelled
	}
	r.x.mu.Lock()
	if r.stopped {
		r.x.mu.Unlock()
		<-ended
		return exec.Ended
	}
	r.op.CompleteLocked()
	r.op.RecycleLocked()
	r.x.mu.Unlock()
	return exec.Recycled
}

func (r *callExecution) NeedsLocked(rank int) bool {
	for _, missing := range r.WaitsForLocked() {
		if missing == rank {
			return true
		}
	}
	return false
}

func (r *callExecution) WaitsForLocked() []int { return r.x.meetings.missingRanks(r.call.Seq) }

func (r *callExecution) ProgressLocked() (uint64, bool) {
	return uint64(len(r.WaitsForLocked())), false
}

func (r *callExecution) InterruptLocked() { r.stopped = true }
func (r *callExecution) Release()         {}

func (r *callExecution) TraceLocked(bool) exec.Trace {
	return exec.Trace{Round: 1, Rounds: 1, Bytes: int64(len(r.work.Data))}
}

// useCallExecutor adds the vectors of a world by calls of a Go function.
func useCallExecutor(w *world) {
	m := newMeetings(len(w.comms))
	for rank, c := range w.comms {
		c.UseExecutor(testID, func(mu *sync.Mutex) exec.Executor { return &callExecutor{meetings: m, rank: rank, mu: mu} })
	}
}

// useFrameExecutor adds them by frames, in an executor of its own.
func useFrameExecutor(w *world) {
	for _, c := range w.comms {
		c.UseExecutor(testID, newFrameExecutor(c))
	}
}

// testWork is a collective for the executor of these tests.
func testWork(data []byte) exec.Work {
	return exec.Work{
		Schedule: &exec.Schedule{
			Call: wire.Call{
				Kind: uint8(plan.AllReduce), Type: uint8(kernel.Int32), Op: uint8(kernel.Sum), Count: uint64(len(data) / 4), Plan: 99,
			},
			Executor: testID, Channels: 1,
		},
		Data: data,
	}
}

// TestThirdExecutor: executors that the engine does not know, one that exchanges no frames and
// one that does, carry collectives out, in turn with those over links. Results, order,
// cancellation, timeouts, mismatches and the departure of ranks are the same.
func TestThirdExecutor(t *testing.T) {
	for name, use := range map[string]func(w *world){"calls": useCallExecutor, "frames": useFrameExecutor} {
		t.Run(name, func(t *testing.T) {
			start := func(t *testing.T) *world {
				w := newWorld(t, 3, overMem, Config{})
				use(w)
				return w
			}
			t.Run("results", func(t *testing.T) { executorResults(t, start(t)) })
			t.Run("cancelled", func(t *testing.T) { executorCancelled(t, start(t)) })
			t.Run("timeout", func(t *testing.T) { executorTimeout(t, start(t)) })
			t.Run("mismatch", func(t *testing.T) { executorMismatch(t, start(t)) })
			t.Run("departure", func(t *testing.T) { executorDeparture(t, start(t)) })
		})
	}
}

// executorCount is the number of elements of a vector.
const executorCount = 1000

func runWork(ctx context.Context, c *Comm, work exec.Work) error {
	op, err := c.Start(&work)
	if err == nil {
		err = op.Wait(ctx)
	}
	return err
}

func executorResults(t *testing.T, w *world) {
	noError(t, w.on(func(rank int, c *Comm) error {
		for i := range 20 {
			if rank == 0 && i%4 == 0 {
				time.Sleep(time.Millisecond) // Frames of the others arrive early.
			}
			data := vector(rank, executorCount)
			work := testWork(data)
			if i%3 == 0 {
				work = w.work(rank, ring, data)
			}
			if err := runWork(t.Context(), c, work); err != nil {
				return err
			}
			if err := checkSum(data, len(w.comms)); err != nil {
				return err
			}
		}
		return nil
	}))
}

func executorCancelled(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runWork(ctx, w.comms[0], testWork(vector(0, executorCount))); !errors.Is(err, context.Canceled) {
		t.Errorf("the rank that cancels: %v", err)
	}
	if err := runWork(t.Context(), w.comms[1], testWork(vector(1, executorCount))); !isType[*RevokedError](err) && !isType[*EndedError](err) {
		t.Errorf("another rank: %v, want that the communicator is revoked", err)
	}
}

func executorTimeout(t *testing.T, w *world) {
	late := testWork(vector(0, executorCount))
	late.Timeout = 300 * time.Millisecond
	err := runWork(t.Context(), w.comms[0], late)
	if e, ok := errors.AsType[*TimeoutError](err); !ok || len(e.Waiting) != len(w.comms)-1 {
		t.Errorf("%v, want a timeout that names both other ranks", err)
	}
}

func executorMismatch(t *testing.T, w *world) {
	errs := w.on(func(rank int, c *Comm) error {
		if rank == 0 {
			return runWork(t.Context(), c, testWork(vector(rank, executorCount)))
		}
		return runWork(t.Context(), c, w.work(rank, ring, vector(rank, executorCount)))
	})
	for rank, err := range errs {
		if ended, ok := errors.AsType[*EndedError](err); ok {
			err = ended.Err
		}
		if !isType[*MismatchError](err) {
			t.Errorf("rank %d: %v, want a MismatchError", rank, err)
		}
	}
}

func executorDeparture(t *testing.T, w *world) {
	w.leave(2)
	errs := w.on(func(rank int, c *Comm) error {
		if rank == 2 {
			return nil
		}
		return runWork(t.Context(), c, testWork(vector(rank, executorCount)))
	})
	for rank, err := range errs[:2] {
		p, left := errors.AsType[*PeerError](err)
		r, revoked := errors.AsType[*RevokedError](err)
		if !(left && p.Left && isRank(p.Rank, 2)) && !(revoked && isRank(r.Peer, 2)) {
			t.Errorf("rank %d: %v, want that rank 2 has left", rank, err)
		}
	}
}
