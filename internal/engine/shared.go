package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/shmcoll"
	"github.com/nexar-go/nexar/internal/wire"
)

// shared is what an operation needs on a board. The goroutine that waits for
// the operation carries it out: to hand it over would take longer than many an
// operation does. Operations on a board come one after the other.
type shared struct {
	work    shmcoll.Work
	mark    uint32        // what ranks have finished when they have finished this
	before  chan struct{} // closed when the operation before has ended; nil if it had
	next    *Op           // the operation that waits for this one
	odd     int           // the rank that has made another call, plus 1
	stopped atomic.Bool   // the operation has failed
}

// UseBoard lets collectives run on a board, which all ranks do or none, until the
// communicator is closed. It is called before the first one.
func (c *Comm) UseBoard(b *shmcoll.Board) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.board, c.place = b, b.Place()
	if c.err != nil { // It may have been closed by now.
		b.Leave()
	}
}

// Board is the board of the communicator, or nil.
func (c *Comm) Board() *shmcoll.Board { return c.board }

// share prepares an operation for the board. It is called with the lock held.
func (op *Op) share() {
	c, s := op.comm, &op.shared
	if s.work.Poll == nil {
		s.work.Poll, s.work.Stopped = op.poll, &s.stopped
	}
	w := &op.work
	if op.channels > 1 && !w.Shared.Single {
		panic("engine: a vector in pieces for a plan that cannot be cut")
	}
	op.oneTemp, op.remaining = true, 1
	s.work.Program, s.work.Buffers, s.work.Reduce = w.Shared, &op.slicer, w.Reduce
	s.work.Pieces, s.work.Elem, s.work.Unit = op.channels, op.Elem, op.unit(op.chunks, op.channels)
	s.work.Print = fingerprint(&op.call)
	c.pieces += uint32(op.channels)
	s.mark = c.pieces
	s.before, s.next, s.odd = nil, nil, 0
	if c.last != nil {
		s.before = make(chan struct{})
		c.last.shared.next = op
	}
	c.last = op
}

// fingerprint is a number that differs, but for one case in four billion, if
// calls do.
func fingerprint(c *wire.Call) uint32 {
	h := mix(c.Comm, c.Seq)
	h = mix(h, uint64(c.Kind)|uint64(c.Type)<<8|uint64(c.Op)<<16|uint64(c.Plan)<<24|uint64(c.Root)<<32)
	h = mix(h, c.Count)
	h = mix(h, uint64(c.Channels))
	return uint32(h >> 32)
}

// mix spreads what is in two numbers over all bits of one, after Steele, Lea
// and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
func mix(a, b uint64) uint64 {
	a += b*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	a = (a ^ a>>30) * 0xbf58476d1ce4e5b9
	a = (a ^ a>>27) * 0x94d049bb133111eb
	return a ^ a>>31
}

// play carries an operation out on the board, unless it has failed, or does
// while play is at it. It reports whether the operation has ended well.
func (op *Op) play(ctx context.Context) (well bool) {
	c, s := op.comm, &op.shared
	if s.before != nil && !op.takeTurn(ctx) {
		return false
	}
	err := errPanicked
	defer func() { well = op.played(err) }()
	err = c.board.Run(ctx, &s.work)
	return well
}

// takeTurn waits for the operation before. An operation that has none before it is
// at work from its start: Run ends it before it posts anything if it has failed.
func (op *Op) takeTurn(ctx context.Context) bool {
	select {
	case <-op.shared.before:
	case <-ctx.Done():
		return false
	}
	op.comm.mu.Lock()
	defer op.comm.mu.Unlock()
	if op.failing {
		return false
	}
	op.busy++
	return true
}

// errPanicked is why an operation ends whose function has panicked, or has
// ended its goroutine.
var errPanicked = errors.New("the function that combines has not returned")

// played takes an operation off the board that Run has ended with err.
func (op *Op) played(err error) (well bool) {
	c := op.comm
	c.mu.Lock()
	op.busy--
	well = err == nil && !op.failing
	odd, isOdd := errors.AsType[*shmcoll.MismatchError](err)
	_, noMemory := errors.AsType[*shmcoll.MemoryError](err)
	var gone *PeerError
	switch {
	case well:
		op.remaining = 0
		op.retire()
		c.recycle(op)
	case op.failing:
		c.quiet.Broadcast()
	case isOdd:
		op.shared.odd = odd.Rank + 1
		gone = c.gone(op)
	}
	c.mu.Unlock()
	switch {
	case gone != nil:
		c.revokeLeft(gone)
	case isOdd:
		// It has made another call, and will say so.
		c.links[odd.Rank].Probe(wire.Probe{Call: op.call})
	case err == errPanicked || noMemory:
		c.cancel(nil, err)
	}
	return well
}

// needsShared reports whether the operation still waits for rank: that has not
// finished, or it has, but with another call.
func (op *Op) needsShared(rank int) bool {
	b := op.comm.board
	return op.shared.odd == rank+1 || !b.Finished(rank, op.shared.mark) || op.busy > 0 && b.Stuck(rank, op.shared.mark)
}

// poll ends what runs on the board while it waits, when the operation has
// failed or its context has ended.
func (op *Op) poll(ctx context.Context) error {
	if op.shared.stopped.Load() {
		return shmcoll.ErrStopped
	}
	return ctx.Err()
}

// interrupt stops an operation that has failed.
func (op *Op) interrupt() {
	op.shared.stopped.Store(true)
	op.comm.board.Interrupt()
}

// handOn lets the operation that comes next on the board begin.
func (op *Op) handOn() {
	c := op.comm
	if next := op.shared.next; next != nil {
		op.shared.next = nil
		close(next.shared.before)
	}
	if c.last == op {
		c.last = nil
	}
}

// awaited is the rank that the operation waits for on the board.
func (op *Op) awaited() []int {
	if rank := op.comm.board.Waiting(); rank >= 0 && op.busy > 0 {
		return []int{rank}
	}
	return nil
}
