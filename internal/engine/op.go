package engine

import (
	"context"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/shmcoll"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Recipe is how collectives that are alike are carried out. Operations share
// it, so that it is not changed any more.
type Recipe struct {
	// Call is the fingerprint; Comm and Seq are filled in.
	Call wire.Call
	// Program is the plan of this rank. Channels of it run side by side, at
	// least one; more only if Program.Single. If Shared is set instead, that
	// runs on the board of the communicator, Channels times one after the
	// other.
	Program  *Program
	Shared   *shmcoll.Program
	Channels int
	Layout   Layout
	// Pool lends the memory for Temp.
	Pool *bufpool.Pool
}

// Work is a collective to carry out.
type Work struct {
	*Recipe
	// Data and Input are the buffers, and DataFirst and InputFirst the chunk
	// that each begins with.
	Data, Input           []byte
	DataFirst, InputFirst int
	// Reduce makes dst = a op b. It may be nil if nothing is reduced.
	Reduce func(dst, a, b []byte)
	// Timeout is the longest time without progress; 0 means for ever.
	Timeout time.Duration
}

// set copies w word by word: it has just been written so, and to read several
// words at once would have to wait until they have arrived in the cache.
func (w *Work) set(to *Work) {
	w.Recipe, w.Reduce, w.Timeout = to.Recipe, to.Reduce, to.Timeout
	w.Data, w.DataFirst, w.Input, w.InputFirst = to.Data, to.DataFirst, to.Input, to.InputFirst
}

// Single reports whether the program can run on several channels.
func (g *Program) Single() bool { return g.single }

// Chunks is in how many chunks the program divides a vector.
func (g *Program) Chunks() int { return g.chunks }

// The state of a move in a channel.
const (
	ready   uint8 = 1 << iota // it waits for no other move
	wanted                    // a grant was asked for
	granted                   // a grant was made, or was received
	done
)

// A slot is a move in a channel of an operation.
type slot struct {
	waits int32
	state uint8
	grant uint64 // the peer's number for it
	held  *held  // its payload, if that came early
}

// An Op is a collective under way. All its fields are guarded by the lock of
// its Comm, save for the buffers, which belong to whoever carries out a move.
type Op struct {
	comm *Comm
	call wire.Call
	work Work
	slicer
	slots     []slot // by channel and move
	ready     []int32
	pushes    []*link.Link // that have something to deliver
	remaining int          // slots that are not done
	busy      int          // goroutines at work on it
	sinks     []link.Sink
	transfers []link.Transfer
	temp      *bufpool.Buffer
	combine   func(dst, a, b []byte) // the method reduce

	shared shared // for one that runs on a board

	failing bool
	err     error
	ended   chan struct{} // gets one value at the end

	begun      int64 // by the clock of the engine
	timed      bool  // the end is worth a look at the clock
	bytes      int64 // that were sent and received over links
	stuckRound int   // the round in which it has failed
	stuckFor   int   // a rank that it was waiting for then, or -1

	moved    time.Time // when the watch last saw progress
	progress int       // what it measured then
	search   search
}

// Start begins a collective. Its buffers belong to the engine until Wait has
// returned.
func (c *Comm) Start(w *Work) (*Op, error) {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, &EndedError{c.err}
	}
	c.seq++
	op := c.newOp(w)
	c.ops.put(op)
	c.engine.begin()
	op.stamp()
	op.busy++
	if w.Shared == nil {
		op.firstMoves()
	}
	theirs, gone := c.admitAhead(op), c.gone(op)
	if c.abstains != nil {
		theirs, gone = nil, c.abstains // Others may well call it otherwise.
	}
	var ours wire.Call
	if theirs != nil {
		ours = op.call
	}
	switch {
	case w.Shared != nil:
		if op.shared.before != nil {
			op.busy-- // until its turn
		}
	case theirs != nil || gone != nil:
		op.busy--
	default:
		op.leave()
	}
	c.mu.Unlock()
	switch {
	case theirs != nil:
		c.mismatch(ours, theirs.rank, theirs.call)
	case gone != nil:
		c.revokeLeft(gone)
	}
	return op, nil
}

// Number is the sequence number of the operation. It is asked before Wait.
func (op *Op) Number() uint64 { return op.call.Seq }

// firstMoves makes the moves ready that wait for no other.
func (op *Op) firstMoves() {
	g := op.work.Program
	for ch := range op.channels {
		for _, m := range g.first {
			op.ready = append(op.ready, int32(ch*len(g.moves))+m)
		}
	}
}

// gone is the error of an operation that needs a rank that has left, or nil.
// What that rank had sent before is enough for others.
func (c *Comm) gone(op *Op) *PeerError {
	for rank, after := range c.left {
		if op.call.Seq > after && op.needs(rank) {
			return leftError(rank)
		}
	}
	return nil
}

// newOp takes an Op for w from the free ones, or makes one.
func (c *Comm) newOp(w *Work) *Op {
	var op *Op
	if n := len(c.freeOps); n > 0 {
		op, c.freeOps = c.freeOps[n-1], c.freeOps[:n-1]
	} else {
		op = &Op{comm: c, ended: make(chan struct{}, 1)}
		op.combine = op.reduce
	}
	op.work.set(w)
	op.call = w.Call
	op.call.Comm, op.call.Seq = c.id, c.seq
	op.slicer.take(w)
	op.slots = op.slots[:0]
	if g := w.Program; w.Shared != nil {
		op.chunks = w.Shared.Chunks
		op.takeTemp(w.Shared.TempLo, w.Shared.TempHi, 1)
		op.share()
	} else {
		op.chunks = g.chunks
		op.takeTemp(g.tempLo, g.tempHi, op.channels)
		for range op.channels {
			for i := range g.moves {
				op.slots = append(op.slots, slot{waits: g.moves[i].waits})
			}
		}
		op.remaining = len(op.slots)
	}
	op.ready, op.busy = op.ready[:0], 0
	op.failing, op.err = false, nil
	op.moved, op.progress = time.Time{}, 0
	return op
}

// takeTemp gets the memory for chunks lo ≤ i < hi of Temp, so many times.
func (op *Op) takeTemp(lo, hi, times int) {
	if hi > lo {
		op.tempSize = op.tempBytes(lo, hi)
		op.bufs[plan.Temp] = window{nil, lo}
		if op.tempSize > 0 { // of a barrier nothing has to be kept
			op.temp = op.work.Pool.Get(op.tempSize * times)
			op.bufs[plan.Temp].mem = op.temp.B
		}
	}
}

// Wait waits for the end of the operation. If ctx ends first the communicator
// is revoked on all ranks. When Wait returns nothing uses the buffers of the
// operation any more, and the Op must not be used again.
func (op *Op) Wait(ctx context.Context) error {
	if op.work.Shared != nil && op.play(ctx) {
		return nil
	}
	if !op.await(ctx) {
		op.comm.cancel(func() bool { return !op.over() }, context.Cause(ctx))
		<-op.ended
	}
	err := op.err
	if err == nil {
		c := op.comm
		c.mu.Lock()
		c.recycle(op)
		c.mu.Unlock()
	}
	return err
}

// await waits for the end. It reports false if ctx ends first.
func (op *Op) await(ctx context.Context) bool {
	var peers []int
	if g := op.work.Program; g != nil {
		peers = g.peers
	}
	return op.comm.await(ctx, op.ended, peers)
}

// recycle keeps an operation that has ended well for the next one.
func (c *Comm) recycle(op *Op) {
	op.work, op.bufs, op.shared.work.Reduce = Work{}, [3]window{}, nil
	c.freeOps = append(c.freeOps, op)
}

// leave is called, with the lock held, by a goroutine at its end of work on
// the operation. It makes the moves that have become ready, and ends the
// operation after the last.
func (op *Op) leave() {
	for len(op.ready) > 0 && !op.failing {
		i := op.ready[len(op.ready)-1]
		op.ready = op.ready[:len(op.ready)-1]
		op.make(int(i))
	}
	op.push()
	op.busy--
	switch {
	case op.failing:
		op.comm.quiet.Broadcast()
	case op.busy == 0 && op.remaining == 0:
		op.end()
	}
}

// push has the links send what they were given to deliver.
func (op *Op) push() {
	for len(op.pushes) > 0 {
		l := op.pushes[len(op.pushes)-1]
		op.pushes = op.pushes[:len(op.pushes)-1]
		op.comm.mu.Unlock()
		l.Push()
		op.comm.mu.Lock()
	}
}

// finished marks a slot as done, and those that waited for no other as ready.
func (op *Op) finished(i int) {
	g := op.work.Program
	op.slots[i].state |= done
	op.remaining--
	base := i / len(g.moves) * len(g.moves)
	for _, m := range g.moves[i-base].next {
		s := &op.slots[base+int(m)]
		if s.waits--; s.waits == 0 {
			op.ready = append(op.ready, int32(base)+m)
		}
	}
}

// end takes the operation off its communicator and wakes whoever waits.
func (op *Op) end() {
	op.retire()
	op.ended <- struct{}{}
}

// retire takes the operation off its communicator.
func (op *Op) retire() {
	c := op.comm
	c.ops.remove(op)
	op.note()
	c.engine.active.Add(-1)
	if op.work.Shared != nil {
		op.handOn()
	}
	if op.temp != nil {
		op.work.Pool.Put(op.temp)
		op.temp = nil
	}
	for i := range op.slots {
		if h := op.slots[i].held; h != nil {
			op.slots[i].held = nil
			c.drop(h)
		}
	}
	if c.err != nil {
		c.quiet.Broadcast()
	}
}

// fail ends the operation with err, as soon as nothing uses its buffers. It
// is called with the lock held and does not wait.
func (op *Op) fail(err error) {
	if op.failing || op.over() {
		return
	}
	op.stuck()
	op.failing, op.err = true, err
	if op.work.Shared != nil {
		op.interrupt()
	}
	op.comm.engine.wg.Go(op.abandon)
}

// abandon takes all buffers of a failing operation back.
func (op *Op) abandon() {
	c := op.comm
	c.mu.Lock()
	defer c.mu.Unlock()
	for op.busy > 0 {
		c.quiet.Wait()
	}
	// From here on no one but this goroutine touches the slots: arrivals find
	// the operation failing.
	c.mu.Unlock()
	for i := range op.sinks {
		if s := &op.sinks[i]; s.Owner != nil {
			c.links[op.move(i).Peer].Ungrant(s)
		}
	}
	for i := range op.transfers {
		if t := &op.transfers[i]; t.Owner != nil {
			c.links[op.move(i).Peer].Recall(t)
		}
	}
	c.mu.Lock()
	op.end()
}

// move is the move of a slot.
func (op *Op) move(i int) *move {
	g := op.work.Program
	return &g.moves[i%len(g.moves)]
}

// over reports whether the operation has ended well.
func (op *Op) over() bool { return op.remaining == 0 && op.busy == 0 }

// needs reports whether the operation still waits for rank.
func (op *Op) needs(rank int) bool {
	if op.work.Shared != nil {
		return op.needsShared(rank)
	}
	for i := range op.slots {
		s, m := &op.slots[i], op.move(i)
		local := m.Kind == plan.Copy || m.Kind == plan.Combine
		if !local && m.Peer == rank && s.state&done == 0 && s.held == nil {
			return true
		}
	}
	return false
}
