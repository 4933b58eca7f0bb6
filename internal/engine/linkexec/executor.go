// Package linkexec carries collectives out over links.
//
// Compile makes a Program of a plan once. An Executor carries the programs of one
// communicator out, with an Execution for each operation under way. Operations have no
// goroutine: a move is made by the goroutine that delivers the last frame that the move
// depends on.
//
// A transition of an Execution happens under the lock of the communicator and returns
// the next effect: a frame to send, or a payload to copy or combine. The effect is carried
// out without the lock, then the next one is taken, until all moves that remain depend on
// frames of other ranks.
package linkexec

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/wire"
)

// An Executor carries out the collectives of one communicator.
type Executor struct {
	links    []*link.Link
	mu       *sync.Mutex // of the communicator
	idle     sync.Cond   // the last goroutine has left an interrupted operation
	eagerMax int
	poller   *poll.Poller
}

// New returns the Executor of the communicator with a lock. The poller has the link to each rank.
// Payloads longer than eagerMax bytes need a grant.
func New(mu *sync.Mutex, eagerMax int, poller *poll.Poller) *Executor {
	return &Executor{links: poller.Links, mu: mu, idle: sync.Cond{L: mu}, eagerMax: eagerMax, poller: poller}
}

// NewLocked implements [exec.Executor].
func (x *Executor) NewLocked(op exec.Op) exec.Execution {
	r := &Execution{executor: x, op: op}
	r.combine, r.fill = r.reduce, r.reducePiece
	return r
}

// CloseLocked implements [exec.Executor]. The links belong to others.
func (x *Executor) CloseLocked() {}

// The states of a move in a channel.
const (
	ready   uint8 = 1 << iota // it depends on no other move
	wanted                    // its sender has asked for a grant
	granted                   // its receiver has made the grant
	done
)

// An instance is a move in a channel of an operation.
type instance struct {
	waits int32 // moves that it depends on and that are not done
	state uint8
	grant uint64      // the peer's number of the grant
	frame *exec.Frame // its payload, if it arrived before the move was ready
}

// An Execution carries out one operation. Its fields are guarded by the lock of the
// communicator. Each part of the buffers belongs to the goroutine that makes a move on it.
type Execution struct {
	exec.Vectors
	executor  *Executor
	op        exec.Op
	call      *wire.Call
	work      *exec.Work
	program   *Program
	device    Device                 // nil for memory of the host
	combine   func(dst, a, b []byte) // the method reduce, bound once
	fill      func(dst, a, b []byte) // the method reducePiece, bound once
	filling   atomic.Int32           // goroutines in fill
	instances []instance             // by channel and move
	ready     []int32                // instances that may go on
	first     effect                 // of ReadyLocked, for Run
	pushes    []*link.Link           // with granted payloads to deliver
	remaining int                    // instances that are not done
	busy      int                    // goroutines at work
	launches  int                    // those of them that wait for a device
	stopped   bool
	sinks     []link.Sink
	transfers []link.Transfer
	moved     int64 // bytes, sent and received
	received  int64 // bytes
}

// StartLocked implements [exec.Execution].
func (r *Execution) StartLocked(call *wire.Call, w *exec.Work) {
	g := w.Plan.(*Program)
	r.call, r.work, r.program = call, w, g
	r.Set(w, g.chunks)
	if r.device, _ = w.Device.(Device); r.device == nil {
		r.TakeTemp(g.temp.Lo, g.temp.Hi, false)
	} else if r.SizeTemp(g.temp.Lo, g.temp.Hi, false) > 0 {
		r.LendTemp(r.device.Temp())
	}
	r.instances, r.ready = r.instances[:0], r.ready[:0]
	for ch := range r.Channels {
		for i := range g.moves {
			r.instances = append(r.instances, instance{waits: g.moves[i].waits})
		}
		for _, m := range g.first {
			r.ready = append(r.ready, int32(ch*len(g.moves))+m)
		}
	}
	r.remaining, r.busy, r.launches, r.stopped, r.moved, r.received = len(r.instances), 1, 0, false, 0, 0
}

// ReadyLocked implements [exec.Execution].
func (r *Execution) ReadyLocked() { r.first = r.nextLocked(&effect{kind: resume}) }

// Run implements [exec.Execution].
func (r *Execution) Run() (completed bool) { return r.carryOut(r.first) }

// Wait implements [exec.Execution]: the goroutine reads links while it waits.
func (r *Execution) Wait(ctx context.Context, ended <-chan struct{}) exec.Outcome {
	if r.executor.poller.Wait(ctx, poll.Channel(ended), r.program.peers) {
		return exec.Ended
	}
	return exec.Cancelled
}

// NeedsLocked implements [exec.Execution].
func (r *Execution) NeedsLocked(rank int) bool {
	for i := range r.instances {
		s, m := &r.instances[i], r.move(i)
		if !isLocal(m) && m.Peer == rank && s.state&done == 0 && s.frame == nil {
			return true
		}
	}
	return false
}

// WaitsForLocked implements [exec.Execution]. It returns a rank if a move needs nothing but a
// payload or a grant of that rank.
func (r *Execution) WaitsForLocked() (ranks []int) {
	for i := range r.instances {
		s, m := &r.instances[i], r.move(i)
		if s.state&ready != 0 && s.state&done == 0 && !isLocal(m) && !slices.Contains(ranks, m.Peer) {
			ranks = append(ranks, m.Peer)
		}
	}
	return ranks
}

// PeersLocked implements [exec.Receiver].
func (r *Execution) PeersLocked() []int { return r.program.peers }

// ProgressLocked implements [exec.Execution]. Work of a device occupies no reader of a link, so that it is not exempt from the
// timeout: a device that hangs would switch off that of all later calls too.
func (r *Execution) ProgressLocked() (moved uint64, working bool) {
	filled, delivered := r.underWayLocked()
	return uint64(len(r.instances)-r.remaining) + uint64(filled+delivered), r.busy > r.launches || r.filling.Load() > 0
}

// underWayLocked returns the bytes that have been received and sent of payloads in transfer.
func (r *Execution) underWayLocked() (filled, delivered int) {
	for i := range r.sinks {
		if s := &r.sinks[i]; s.Owner != nil {
			filled += r.executor.links[r.move(i).Peer].Filling(s)
		}
	}
	for i := range r.transfers {
		if t := &r.transfers[i]; t.Owner != nil {
			delivered += r.executor.links[r.move(i).Peer].Delivering(t)
		}
	}
	return filled, delivered
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
	// Only this goroutine uses the instances from here on, because ArriveLocked discards all
	// frames of a stopped operation.
	shared := false
	for i := range r.sinks {
		s := &r.sinks[i]
		if s.Owner == nil {
			continue
		}
		if l := x.links[r.move(i).Peer]; l.IsShared(s) {
			shared = true
		} else {
			l.Ungrant(s)
		}
	}
	if shared {
		r.withdraw()
	}
	for i := range r.transfers {
		if t := &r.transfers[i]; t.Owner != nil {
			x.links[r.move(i).Peer].Recall(t)
		}
	}
	for i := range r.instances {
		if f := r.instances[i].frame; f != nil {
			f.ReturnCredit()
		}
	}
	r.Vectors.Release()
	r.device = nil
}

// withdraw ends the grants that peers may write. Ungrant waits for the peer then, so withdraw waits for all of them at the
// same time.
func (r *Execution) withdraw() {
	var all sync.WaitGroup
	for i := range r.sinks {
		s := &r.sinks[i]
		if l := r.executor.links[r.move(i).Peer]; s.Owner != nil && l.IsShared(s) {
			all.Go(func() { l.Ungrant(s) })
		}
	}
	all.Wait()
}

// TraceLocked implements [exec.Execution].
func (r *Execution) TraceLocked(completed bool) exec.Trace {
	t := exec.Trace{Round: r.program.rounds, Rounds: r.program.rounds, Bytes: r.moved, Received: r.received}
	if completed {
		return t
	}
	for i := range r.instances {
		if r.instances[i].state&done == 0 {
			t.Round = min(t.Round, int(r.move(i).round))
		}
	}
	filled, delivered := r.underWayLocked()
	t.Bytes, t.Received = t.Bytes+int64(filled+delivered), t.Received+int64(filled)
	return t
}

// move returns the move of an instance.
func (r *Execution) move(i int) *move { return &r.program.moves[i%len(r.program.moves)] }

func isLocal(m *move) bool { return m.Kind == plan.Copy || m.Kind == plan.Combine }
