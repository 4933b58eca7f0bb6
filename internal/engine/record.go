package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/trace"
	"github.com/nexar-go/nexar/internal/wire"
)

// A Trace is an operation as it is recorded. Call has, of a collective, what it is
// called and with which parameters, and of a message the type of its elements and,
// as Count, their bytes.
type Trace struct {
	trace.Operation
	Call wire.Call
}

const (
	// timedBytes is from how many bytes on an operation on a board takes so long
	// that its time can be taken.
	timedBytes = 32 << 10
	// timedEvery is at every how many-th of the others the clock is looked at, for
	// all of them.
	timedEvery = 64
)

// Record has the operations of the communicator recorded from now on, as those of
// what it is said to be. If ended is not nil it is called when no operation may
// begin any more, unless this rank has closed it, with the reason and the
// operations as they were, on a goroutine of its own. Nil ends the record.
func (c *Comm) Record(as *trace.Comm, ended func(err error, last []Trace)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.about, c.bequeath = as, ended
}

// Traces are the operations of all communicators that are recorded: those under way
// and the last that have ended.
func (e *Engine) Traces() (list []Trace) {
	e.mu.RLock()
	e.archive.Each(func(t *Trace) { list = append(list, *t) })
	e.mu.RUnlock()
	e.each(func(c *Comm) {
		c.mu.Lock()
		defer c.mu.Unlock()
		list = append(list, c.traces()...)
	})
	return list
}

// archived is how many operations of a communicator are remembered when it has been
// closed.
const archived = 32

// lastTraces are those operations of a communicator that is closed, if users made
// them.
func (c *Comm) lastTraces() (list []Trace) {
	c.mu.Lock()
	if c.about != nil && c.about.Use == "" {
		list = c.traces()
	}
	c.mu.Unlock()
	slices.SortStableFunc(list, func(a, b Trace) int { return a.Began.Compare(b.Began) })
	return list[max(0, len(list)-archived):]
}

// stamp is the time at which an operation begins: not looked up, but at most as
// old as a tick of the watch.
func (c *Comm) stamp() int64 {
	e := c.engine
	switch {
	case c.about == nil:
		return 0
	case e.parked.Load():
		e.rouse()
		return e.clock.Now()
	}
	return e.clock.Recent()
}

// stampEnd is the time at which one ends that began at begun. It is looked up if
// that was a while ago.
func (c *Comm) stampEnd(begun int64) int64 {
	e := c.engine
	if c.about == nil || e.clock.Recent() == begun && !e.parked.Load() {
		return begun
	}
	return e.clock.Now()
}

// stamp takes the time at which the operation begins.
func (op *Op) stamp() {
	c := op.comm
	op.bytes = 0
	if c.about == nil {
		return
	}
	op.timed = op.work.Shared == nil || max(len(op.work.Data), len(op.work.Input)) >= timedBytes
	if op.timed || op.call.Seq%timedEvery == 0 {
		op.begun = c.engine.clock.Now()
		return
	}
	op.begun = c.engine.clock.Recent()
}

// note records the operation, which has ended.
func (op *Op) note() {
	c := op.comm
	if c.about == nil {
		p := c.past.put(op.call.Seq, historyLength)
		p.call, p.noted = op.call, false
		return
	}
	p := c.past.put(op.call.Seq, historyMax)
	p.call, p.begun, p.ended, p.noted, p.failed = op.call, op.begun, op.begun, true, op.failing
	if op.timed || c.engine.clock.Recent() != op.begun || c.engine.parked.Load() {
		p.ended = c.engine.clock.Now()
	}
	if op.work.Shared != nil {
		p.bytes, p.rounds = op.vectorBytes(), uint16(op.channels)
	} else {
		p.bytes, p.rounds = op.bytes, uint16(op.work.Program.rounds)
	}
	if op.failing {
		p.bytes, p.round, p.waiting = op.bytes, uint16(op.stuckRound), int32(op.stuckFor)
	}
}

// stuck notes how far an operation has come that fails now.
func (op *Op) stuck() {
	if op.comm.about == nil {
		return
	}
	op.stuckRound, op.stuckFor = op.round(), -1
	if ranks := op.waitsFor(); len(ranks) > 0 {
		op.stuckFor = ranks[0]
	}
}

// vectorBytes is how long the vector of an operation on a board is.
func (op *Op) vectorBytes() int64 { return int64(max(len(op.work.Data), len(op.work.Input))) }

// rounds is how many rounds the plan has, or how many pieces there are on a board.
func (op *Op) rounds() int {
	if op.work.Shared != nil {
		return op.channels
	}
	return op.work.Program.rounds
}

// round is the first of them that has not ended, from 1 on.
func (op *Op) round() int {
	if op.work.Shared != nil {
		left := op.comm.board.Left(op.shared.mark)
		return min(op.channels, op.channels-min(left, op.channels)+1)
	}
	first := op.work.Program.rounds
	for i := range op.slots {
		if op.slots[i].state&done == 0 {
			first = min(first, int(op.move(i).round))
		}
	}
	return first
}

// carried is how much an operation that does not fail has sent and received.
func (op *Op) carried() int64 {
	if op.work.Shared != nil {
		left := min(op.comm.board.Left(op.shared.mark), op.channels)
		return op.vectorBytes() * int64(op.channels-left) / int64(op.channels)
	}
	sum := op.bytes
	for i := range op.sinks {
		if s := &op.sinks[i]; s.Owner != nil {
			sum += int64(op.comm.links[op.move(i).Peer].Filling(s))
		}
	}
	for i := range op.transfers {
		if t := &op.transfers[i]; t.Owner != nil {
			sum += int64(op.comm.links[op.move(i).Peer].Delivering(t))
		}
	}
	return sum
}

// traces are the operations of the communicator. It is called with the lock held.
func (c *Comm) traces() (list []Trace) {
	if c.about == nil || !c.opened {
		return nil
	}
	for i := range c.past.ring {
		if p := &c.past.ring[i]; p.noted {
			list = append(list, c.pastTrace(p))
		}
	}
	c.pastMessages.Each(func(m *pastMessage) { list = append(list, c.messageTrace(m)) })
	now := c.engine.clock.Now()
	c.ops.each(func(op *Op) { list = append(list, op.trace(now)) })
	c.messagesUnderWay(func(m pastMessage, moved int) {
		t := c.messageTrace(&m)
		t.End, t.Took, t.Bytes = "", time.Duration(now-m.begun), int64(moved)
		if m.peer >= 0 {
			t.SetWaiting([]int{t.Peer})
		}
		list = append(list, t)
	})
	return list
}

// newTrace is what all operations of the communicator have in common.
func (c *Comm) newTrace(begun, ended int64) Trace {
	return Trace{Operation: trace.Operation{
		Comm: trace.CommName(c.id), Epoch: c.about.Epoch, Use: c.about.Use, Root: -1, Peer: -1,
		Began: c.engine.clock.Time(begun), Took: time.Duration(max(0, ended-begun)),
	}}
}

// pastTrace is that of a collective that has ended.
func (c *Comm) pastTrace(p *past) Trace {
	t := c.newTrace(p.begun, p.ended)
	c.setCall(&t, p.call)
	t.Round, t.Rounds, t.Bytes, t.End = int(p.rounds), int(p.rounds), p.bytes, trace.OK
	if p.failed {
		t.Round, t.End = int(p.round), Outcome(c.err)
		if p.waiting >= 0 {
			t.SetWaiting(c.world(int(p.waiting)))
		}
	}
	return t
}

// trace is that of a collective under way.
func (op *Op) trace(now int64) Trace {
	c := op.comm
	t := c.newTrace(op.begun, now)
	c.setCall(&t, op.call)
	t.Rounds = op.rounds()
	if op.failing { // What it had is being taken back.
		t.Round, t.Bytes, t.End = op.stuckRound, op.bytes, Outcome(op.err)
		if op.stuckFor >= 0 {
			t.SetWaiting(c.world(op.stuckFor))
		}
		return t
	}
	t.Round, t.Bytes = op.round(), op.carried()
	t.SetWaiting(c.world(op.waitsFor()...))
	return t
}

func (c *Comm) setCall(t *Trace, call wire.Call) {
	t.Call, t.Number = call, call.Seq
	if plan.Collective(call.Kind).Rooted() {
		t.Root = c.world(int(call.Root))[0]
	}
}

// world are the ranks of the world that ranks of the communicator are.
func (c *Comm) world(ranks ...int) []int {
	list := make([]int, 0, len(ranks))
	for _, r := range ranks {
		if r < len(c.about.Ranks) {
			r = c.about.Ranks[r]
		}
		list = append(list, r)
	}
	return list
}

// Outcome is what is recorded of an operation that has ended with err, one of this
// package or of a context.
func Outcome(err error) string {
	if err == nil {
		return trace.OK
	}
	if e, ok := errors.AsType[*PeerError](err); ok && e.Left {
		return trace.PeerLeft
	} else if ok {
		return trace.PeerFailed
	}
	if e, ok := errors.AsType[*RevokedError](err); ok {
		switch e.Cause {
		case wire.CauseTimeout:
			return trace.Timeout
		case wire.CauseFailed:
			return trace.PeerLeft
		}
		return trace.Revoked
	}
	if _, ok := errors.AsType[*TimeoutError](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return trace.Timeout
	}
	if _, ok := errors.AsType[*MismatchError](err); ok {
		return trace.Mismatch
	}
	switch {
	case errors.Is(err, ErrClosed):
		return trace.Closed
	case errors.Is(err, context.Canceled):
		return trace.Cancelled
	}
	return trace.Failed
}
