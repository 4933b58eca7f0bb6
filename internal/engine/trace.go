package engine

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// A Trace describes an operation. Call is the fingerprint of a collective. For a message, only Type
// and Count of Call are set: the type of the elements and the number of bytes.
type Trace struct {
	trace.Operation
	Call wire.Call
}

// timedEvery is the interval, in brief operations, at which times are read from the clock. The
// other brief operations start at the time that was read last.
const timedEvery = 64

// SetTracing starts to trace the operations of the communicator, which about describes; with nil it
// stops.
func (c *Comm) SetTracing(about *recorder.Comm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traced = about
	c.messages.SetTracing(about != nil)
}

// Traces returns the operations of all communicators that are traced: those under way
// and the last that have ended.
func (e *Engine) Traces() (list []Trace) {
	e.mu.RLock()
	e.archive.Each(func(t *Trace) { list = append(list, *t) })
	e.mu.RUnlock()
	e.each(func(c *Comm) {
		c.mu.Lock()
		defer c.mu.Unlock()
		list = append(list, c.tracesLocked()...)
	})
	return list
}

// SetSites sets where the program has called the operations of s that have lasted for a second or, if there are none that long, where its main
// goroutine is. It returns how long the program has been in no operation, or the largest duration if it has made none. Operations that no
// goroutine waits for do not count.
func (e *Engine) SetSites(s *trace.Snapshot) (free time.Duration) {
	free = math.MaxInt64
	for i := range s.Operations {
		o := &s.Operations[i]
		switch {
		case o.Site == nowhere:
			o.Site = ""
		case o.Purpose != "":
		case !o.Running():
			free = min(free, s.Time.Sub(o.Start.Add(o.Duration)))
		default:
			if free = 0; o.Duration >= trace.StalledAfter {
				o.Site = e.sites.Call(o.Op)
			}
		}
	}
	if free >= trace.StalledAfter {
		s.Site = e.sites.Main()
	}
	return free
}

// nowhere is the Site of an operation that no goroutine waits for, until SetSites.
const nowhere = "-"

// archived limits the operations of a closed communicator that are remembered.
const archived = 32

// lastTraces returns the last operations, unless nexar itself uses the communicator.
func (c *Comm) lastTraces() (list []Trace) {
	c.mu.Lock()
	if c.traced != nil && c.traced.Purpose == "" {
		list = c.tracesLocked()
	}
	c.mu.Unlock()
	slices.SortStableFunc(list, func(a, b Trace) int { return a.Start.Compare(b.Start) })
	return list[max(0, len(list)-archived):]
}

// Stamp implements [p2p.Clock]. It returns the time of the last tick of the watchdog, or reads the clock if ticks are far apart.
func (e *Engine) Stamp() int64 {
	rest := e.resting()
	if rest <= watchTick && !e.isExact() {
		return e.clock.Recent()
	}
	if rest >= dozeMax {
		e.wakeWatchdog()
	}
	return e.clock.Now()
}

// StampEnd implements [p2p.Clock]. It reads the clock for messages that take longer than a tick.
func (e *Engine) StampEnd(begun int64) int64 {
	if e.clock.Recent() == begun && e.resting() <= watchTick && !e.isExact() {
		return begun
	}
	return e.clock.Now()
}

// TimeExactly makes the engine read the clock at the beginning and at the end of all operations, for some time.
func (e *Engine) TimeExactly(d time.Duration) {
	now := e.clock.Now()
	if e.exact.until.Load() < now {
		e.exact.from.Store(now)
	}
	e.exact.until.Store(now + int64(d))
}

func (e *Engine) isExact() bool { return e.clock.Recent() < e.exact.until.Load() }

// isApproximate reports whether the times of an operation, which may be that of a tick, are approximate.
func (e *Engine) isApproximate(begun int64) bool {
	return begun <= e.exact.from.Load() || begun >= e.exact.until.Load()
}

// stampLocked notes the start of the operation.
func (op *Op) stampLocked() {
	c, s := op.comm, op.call
	s.isTraced, s.timed, s.failed = c.traced != nil, false, false
	switch {
	case !s.isTraced:
	case !op.work.Brief || s.Seq%timedEvery == 0 || c.engine.isExact():
		s.begun, s.timed = c.engine.clock.Now(), true
	default:
		s.begun = c.engine.clock.Recent()
	}
}

// traceLocked notes the end of the operation in its call, if the communicator is traced.
func (op *Op) traceLocked() {
	s, e := op.call, op.comm.engine
	if !s.isTraced {
		return
	}
	s.ended = s.begun
	if s.timed || e.clock.Recent() != s.begun || e.resting() > watchTick {
		s.ended = e.clock.Now()
	}
	if !s.failed {
		s.at = op.exec.TraceLocked(true)
	}
}

// traceFailureLocked notes the progress of an operation that fails.
func (op *Op) traceFailureLocked() {
	if s := op.call; s.isTraced {
		ranks := op.exec.WaitsForLocked()
		s.failed, s.at, s.blockedBy = true, op.exec.TraceLocked(false), ranks[:min(1, len(ranks))]
	}
}

// tracesLocked returns the operations of the communicator and some of its calls that wait for the next view.
func (c *Comm) tracesLocked() (list []Trace) {
	if c.traced == nil || !c.opened {
		return nil
	}
	now := c.engine.clock.Now()
	for _, s := range c.calls.ring {
		if s != nil && s.isTraced {
			list = append(list, c.callTraceLocked(s, now))
		}
	}
	for _, w := range c.worlds {
		list = append(list, c.worldTraceLocked(w, now))
	}
	c.messages.Traces(func(r *p2p.Trace, moved int64, isActive bool) {
		list = append(list, c.messageTraceLocked(r, now, moved, isActive))
	})
	return list
}

// newTraceLocked returns a trace with the fields that all operations of the communicator share.
func (c *Comm) newTraceLocked(begun, ended int64) Trace {
	return Trace{Operation: trace.Operation{
		Comm: recorder.CommName(c.id), Epoch: c.traced.Epoch, Purpose: c.traced.Purpose, Root: -1, Peer: -1,
		Start: c.engine.clock.Time(begun), Duration: time.Duration(max(0, ended-begun)),
	}}
}

// callTraceLocked returns the trace of a collective.
func (c *Comm) callTraceLocked(s *call, now int64) Trace {
	ended, at, outcome := s.ended, s.at, trace.OK
	var waiting []int
	if s.op != nil {
		ended, outcome = now, ""
	}
	switch {
	case s.failed: // The executor may be releasing it.
		waiting, outcome = s.blockedBy, Outcome(c.err)
	case s.op != nil:
		waiting, at = s.op.exec.WaitsForLocked(), s.op.exec.TraceLocked(false)
	}
	t := c.newTraceLocked(s.begun, ended)
	t.Call, t.Seq, t.Round, t.Rounds, t.Bytes, t.Outcome = s.Call, s.Seq, at.Round, at.Rounds, at.Bytes, outcome
	t.Approximate = !s.timed
	if s.op != nil && !c.background[s.Seq].Any() {
		t.Site = nowhere
	}
	if s.op != nil && !s.op.progressAt.IsZero() {
		t.Still = max(0, time.Since(s.op.progressAt))
	}
	if plan.Collective(s.Kind).Rooted() {
		t.Root = c.viewRankLocked(int(s.Root))
	}
	if len(waiting) > 0 {
		recorder.SetWaiting(&t.Operation, c.worldRanksLocked(waiting...))
	}
	return t
}

// messageTraceLocked returns the trace of a message that has moved so many bytes.
func (c *Comm) messageTraceLocked(r *p2p.Trace, now, moved int64, isActive bool) Trace {
	ended, outcome := r.Ended, ""
	if isActive {
		ended = now
	} else {
		outcome = messageOutcome(r.Err)
	}
	t := c.newTraceLocked(r.Begun, ended)
	t.Op = MessageName(r.Kind)
	t.Call = wire.Call{Type: r.Type, Count: uint64(r.Bytes)}
	t.Tag, t.Bytes, t.Order, t.Outcome = r.Tag, moved, uint64(r.Order), outcome
	t.Approximate = c.engine.isApproximate(r.Begun)
	if r.Idle {
		t.Site = nowhere
	}
	if r.Peer >= 0 {
		t.Peer = c.viewRankLocked(int(r.Peer))
		if isActive {
			recorder.SetWaiting(&t.Operation, []int{t.Peer})
		}
	}
	return t
}

// MessageName returns the name of a kind of messages of package p2p.
func MessageName(kind uint8) string {
	return [...]string{p2p.Sent: "send", p2p.Got: "recv", p2p.Probed: "probe"}[kind]
}

func messageOutcome(err error) string {
	if _, misfits := errors.AsType[*p2p.MisfitError](err); misfits {
		return trace.Refused
	}
	return Outcome(err)
}

// worldRanksLocked translates ranks of the communicator to ranks of the world.
func (c *Comm) worldRanksLocked(ranks ...int) []int {
	list := make([]int, 0, len(ranks))
	for _, r := range ranks {
		list = append(list, c.viewRankLocked(r))
	}
	return list
}

// Outcome returns the outcome in the trace of an operation that has ended with err, which is an
// error of this package or of a context.
func Outcome(err error) string {
	var (
		peer     *PeerError
		revoked  *RevokedError
		timeout  *TimeoutError
		mismatch *MismatchError
		deadlock *DeadlockError
	)
	switch {
	case err == nil:
		return trace.OK
	case errors.As(err, &peer) && peer.Left:
		return trace.PeerLeft
	case peer != nil:
		return trace.PeerFailed
	case errors.As(err, &revoked) && revoked.Cause == wire.CauseLeft:
		return trace.PeerLeft
	case revoked != nil && revoked.Cause == wire.CauseFailed:
		return trace.PeerFailed
	case revoked != nil && revoked.Cause != wire.CauseTimeout:
		return trace.Revoked
	case revoked != nil || errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded):
		return trace.Timeout
	case errors.As(err, &deadlock):
		return trace.Deadlock
	case errors.As(err, &mismatch):
		return trace.Mismatch
	case errors.Is(err, ErrClosed):
		return trace.Closed
	case errors.Is(err, context.Canceled):
		return trace.Cancelled
	}
	return trace.Failed
}
