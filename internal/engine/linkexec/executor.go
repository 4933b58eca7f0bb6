// Package linkexec carries collectives out over links.
//
// Compile makes a Program of a plan once. An Executor carries the programs of one
// communicator out, with an Execution for each operation under way. Everything is
// driven by what arrives: a move is made by the goroutine that brings the last thing
// that it depends on, so there is no goroutine per operation.
//
// A transition of an Execution happens under the lock of the communicator and returns
// the next Effect: a frame to send, or a payload to copy or combine. Run carries it out
// without the lock, returns to the lock for the next, and so on until nothing can be
// done without something that has not arrived.
package linkexec

import (
	"context"
	"slices"
	"sync"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/wire"
)

// An Executor carries out the collectives of one communicator. Frames that arrive
// before their collective begins may be kept before Links is set; the rest is used
// afterwards.
type Executor struct {
	links    []*link.Link
	mu       *sync.Mutex // of the communicator
	idle     sync.Cond   // the last goroutine has left an interrupted operation
	eagerMax int
	poller   *poll.Poller
	early    early
}

// New makes an Executor. The lock is that of the communicator; longer payloads than
// eagerMax are granted by their receiver.
func New(mu *sync.Mutex, eagerMax int, poller *poll.Poller) *Executor {
	return &Executor{mu: mu, idle: sync.Cond{L: mu}, eagerMax: eagerMax, poller: poller}
}

// SetLinks sets the link to each rank.
func (x *Executor) SetLinks(links []*link.Link) { x.links = links }

// NewLocked implements [exec.Executor].
func (x *Executor) NewLocked(op exec.Op) exec.Execution {
	r := &Execution{executor: x, op: op}
	r.combine = r.reduce
	return r
}

// CloseLocked implements [exec.Executor]. The links belong to others.
func (x *Executor) CloseLocked() {}

// The states of a move in a channel.
const (
	ready   uint8 = 1 << iota // it depends on no other move any more
	wanted                    // a grant was asked for
	granted                   // a grant was made, or was received
	done
)

// A slot is a move in a channel of an operation.
type slot struct {
	waits int32
	state uint8
	grant uint64 // the peer's number for it
	frame *Frame // its payload, if that arrived early
}

// An Execution carries out one operation. Its fields are guarded by the lock of the
// communicator, except for the buffers: each part belongs to the goroutine that makes
// the move.
type Execution struct {
	exec.Vectors
	executor  *Executor
	op        exec.Op
	call      *wire.Call
	work      *exec.Work
	program   *Program
	combine   func(dst, a, b []byte) // the method reduce, made once
	slots     []slot                 // by channel and move
	ready     []int32
	pushes    []*link.Link // with something to deliver
	remaining int          // slots that are not done
	busy      int          // goroutines at work
	stopped   bool
	sinks     []link.Sink
	transfers []link.Transfer
	moved     int64 // bytes, sent and received
}

// StartLocked implements [exec.Execution].
func (r *Execution) StartLocked(call *wire.Call, w *exec.Work) {
	g := w.Plan.(*Program)
	r.call, r.work, r.program = call, w, g
	r.Set(w, g.chunks)
	r.TakeTemp(g.tempLo, g.tempHi, false)
	r.slots, r.ready = r.slots[:0], r.ready[:0]
	for ch := range r.Channels {
		for i := range g.moves {
			r.slots = append(r.slots, slot{waits: g.moves[i].waits})
		}
		for _, m := range g.first {
			r.ready = append(r.ready, int32(ch*len(g.moves))+m)
		}
	}
	r.remaining, r.busy, r.stopped, r.moved = len(r.slots), 1, false, 0
}

// Run implements [exec.Execution].
func (r *Execution) Run() { r.CarryOut(Effect{kind: start}) }

// Wait implements [exec.Execution]: the goroutine reads links while it waits.
func (r *Execution) Wait(ctx context.Context, ended <-chan struct{}) exec.Outcome {
	if r.executor.poller.Wait(ctx, ended, r.program.peers) {
		return exec.Ended
	}
	return exec.Cancelled
}

// NeedsLocked implements [exec.Execution].
func (r *Execution) NeedsLocked(rank int) bool {
	for i := range r.slots {
		s, m := &r.slots[i], r.move(i)
		if !isLocal(m) && m.Peer == rank && s.state&done == 0 && s.frame == nil {
			return true
		}
	}
	return false
}

// WaitsForLocked implements [exec.Execution]: it returns the ranks whose message, or
// whose grant, is all that a move still needs.
func (r *Execution) WaitsForLocked() (ranks []int) {
	for i := range r.slots {
		s, m := &r.slots[i], r.move(i)
		if s.state&ready != 0 && s.state&done == 0 && !isLocal(m) && !slices.Contains(ranks, m.Peer) {
			ranks = append(ranks, m.Peer)
		}
	}
	return ranks
}

// ProgressLocked implements [exec.Execution].
func (r *Execution) ProgressLocked() (moved uint64, working bool) {
	return uint64(len(r.slots)-r.remaining) + uint64(r.underWay()), r.busy > 0
}

// underWay returns the bytes that have moved of granted payloads.
func (r *Execution) underWay() (bytes int) {
	for i := range r.sinks {
		if s := &r.sinks[i]; s.Owner != nil {
			bytes += r.executor.links[r.move(i).Peer].Filling(s)
		}
	}
	for i := range r.transfers {
		if t := &r.transfers[i]; t.Owner != nil {
			bytes += r.executor.links[r.move(i).Peer].Delivering(t)
		}
	}
	return bytes
}

// InterruptLocked implements [exec.Execution].
func (r *Execution) InterruptLocked() { r.stopped = true }

// Release implements [exec.Execution].
func (r *Execution) Release() {
	x := r.executor
	x.mu.Lock()
	for r.busy > 0 {
		x.idle.Wait()
	}
	x.mu.Unlock()
	// Only this goroutine uses the slots from here on: arrivals find the operation
	// stopped.
	for i := range r.sinks {
		if s := &r.sinks[i]; s.Owner != nil {
			x.links[r.move(i).Peer].Ungrant(s)
		}
	}
	for i := range r.transfers {
		if t := &r.transfers[i]; t.Owner != nil {
			x.links[r.move(i).Peer].Recall(t)
		}
	}
	for i := range r.slots {
		if f := r.slots[i].frame; f != nil {
			f.drop()
		}
	}
	r.Vectors.Release()
}

// TraceLocked implements [exec.Execution].
func (r *Execution) TraceLocked(completed bool) exec.Trace {
	t := exec.Trace{Round: r.program.rounds, Rounds: r.program.rounds, Bytes: r.moved}
	if completed {
		return t
	}
	for i := range r.slots {
		if r.slots[i].state&done == 0 {
			t.Round = min(t.Round, int(r.move(i).round))
		}
	}
	t.Bytes += int64(r.underWay())
	return t
}

// move returns the move of a slot.
func (r *Execution) move(i int) *move { return &r.program.moves[i%len(r.program.moves)] }

func isLocal(m *move) bool { return m.Kind == plan.Copy || m.Kind == plan.Combine }
