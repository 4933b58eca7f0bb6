package engine

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

const (
	// watchTick is the interval at which the watchdog checks operations that run. With more than queryFew ranks it is longer by
	// skippedRounds doublings, as the time before the first queries is (Comm.watchTick).
	watchTick = 20 * time.Millisecond
	// Once all operations have made no progress for dozeAfter, they are checked when one of
	// them may time out or has to send queries, or after dozeMax, since the runtime of Go needs
	// a part of a millisecond for each check. An operation that has moved meanwhile may time out
	// as much later.
	dozeAfter = trace.StalledAfter
	dozeMax   = 250 * time.Millisecond
	// watchIdle is the number of ticks without an operation after which the watchdog sleeps. A sleep costs the next operation a wakeup
	// of the watchdog, and each tick wakes an idle process.
	watchIdle = 5
	// queryAfter is the time without progress after which an operation queries the ranks
	// that it waits for. It doubles up to queryMax.
	queryAfter = 2 * watchTick
	queryMax   = 2 * dozeAfter
	// tickCreditMax caps the time that is charged between two checks. If more has
	// passed, this process was stopped, or its machine, perhaps with all others.
	tickCreditMax = 2 * dozeMax
	// unresponsiveAfter is the time without an answer to a query after which a rank counts as silent.
	unresponsiveAfter = queryMax
	// queriesAtOnce limits the ranks that are queried at a time, with queriesPause between. If
	// all of many ranks queried all others at once, the queries would delay each other.
	queriesAtOnce = 8
	queriesPause  = 2 * queryAfter
	// queryPendingRound is the first round that queries ranks with pending links, and queryPendingLate that of
	// communicators of more than queryFew ranks: to link all of them takes long.
	queryPendingRound = 6
	queryPendingLate  = 9
	queryFew          = 32
	// queryAllMax is the size of the largest communicator whose ranks are linked for queries of an operation that does not wait
	// for them itself. In larger ones, all ranks that wait for a late one would link themselves to all others.
	queryAllMax = 256
	// skippedMax is the largest number of rounds that operations of more than queryFew ranks omit: one for each doubling.
	skippedMax = 3
	// Up to queryAwaitedFew ranks query those that an operation waits for in the first round, although their links
	// are pending. With more ranks, all could wait for the same one.
	queryAwaitedFew = 16
)

// A search is the progress of the queries of an operation that makes no progress: first the
// ranks that it waits for are queried, and from the second round on all, since those may wait
// for others.
type search struct {
	stalled time.Duration // since ranks were queried, or since there was progress
	next    time.Duration // the value of stalled at which more are queried
	pause   time.Duration // between rounds
	rounds  int           // begun
	all     bool          // all ranks have been queried
	ask     []int         // ranks to query in this round
}

// untilWoken is the value of [Engine.rest] while the watchdog sleeps until it is woken, and the time until the next check without operations.
const untilWoken = time.Duration(math.MaxInt64)

// begin wakes the watchdog if it sleeps for longer than the time within which an operation that begins has to be checked.
func (e *Engine) begin(within time.Duration) {
	if !e.begun.Load() { // usually set: a load costs less than a store
		e.begun.Store(true)
	}
	if rest := e.resting(); rest > watchTick {
		if rest > within {
			e.wakeWatchdog()
		}
		e.clock.Now()
	}
}

// resting returns the time between the last check of the watchdog and the next.
func (e *Engine) resting() time.Duration { return time.Duration(e.rest.Load()) }

func (e *Engine) wakeWatchdog() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// watch checks operations that make no progress, until Close.
func (e *Engine) watch() {
	timer := time.NewTimer(watchTick)
	defer timer.Stop()
	idle, tick, last := 0, watchTick, time.Now()
	var comms []*Comm
	occupied := make(map[*link.Link]bool)
	for {
		next := untilWoken
		select {
		case <-e.stop:
			return
		case <-e.wake:
			if tick = watchTick; e.begun.Swap(false) { // otherwise a message has woken it
				next = watchTick
			}
			if idle >= watchIdle {
				idle, last = 0, time.Now() // The time asleep does not count.
			}
		case now := <-timer.C:
			e.begun.Store(false) // The check below sees all operations that have begun so far.
			e.clock.Now()
			comms = e.appendComms(comms[:0])
			e.occupy(comms, occupied)
			for _, c := range comms {
				next = min(next, c.watch(now, now.Sub(last), occupied))
			}
			clear(comms)
			e.watchStalls(now.Sub(last), occupied)
			last = now
		}
		if idle++; next < untilWoken {
			idle, tick = 0, min(next, watchTick<<skippedMax)
		} else {
			next = tick // An operation like the last one may follow soon.
		}
		e.sleep(timer, max(next, watchTick), idle >= watchIdle)
	}
}

// sleep sets the timer of the watchdog. From now on an operation that has to be checked earlier wakes the watchdog. Without
// operations the watchdog sleeps until it is woken.
func (e *Engine) sleep(timer *time.Timer, next time.Duration, idle bool) {
	rest := next
	if idle {
		rest = untilWoken
	}
	e.rest.Store(int64(rest))
	switch {
	case e.begun.Load(): // It may have begun since the check.
		next, idle = watchTick, false
		e.rest.Store(int64(next))
	case idle && e.hasWaits(): // A call that begins after this check wakes it.
		next, idle = dozeMax, false
	}
	if idle {
		timer.Stop()
	} else {
		timer.Reset(next)
	}
}

// occupy sets links to those that this node may not read now: an operation over them is at work and has not moved since the last
// check. It may be in the function of a reduction, on the goroutine that reads one of the links. An operation at work that moves
// occupies no link for long.
func (e *Engine) occupy(comms []*Comm, links map[*link.Link]bool) {
	clear(links)
	for _, c := range comms {
		c.mu.Lock()
		c.occupyLocked(links)
		c.mu.Unlock()
	}
}

func (c *Comm) occupyLocked(links map[*link.Link]bool) {
	c.calls.each(func(op *Op) {
		if op.receiver == nil { // It reads no link.
			return
		}
		moved, working := op.exec.ProgressLocked()
		if working && op.working && moved == op.worked {
			for _, rank := range op.receiver.PeersLocked() {
				links[c.linkTo[rank]] = true
			}
		}
		op.working, op.worked = working, moved
	})
}

// watch times operations out, and queries for those that make no progress. A rank
// that has made another call answers a query with a mismatch. It returns the time until the next
// check, if no operation begins before. The last check was so long ago. That time does not count if the communicator has one of
// the occupied links.
func (c *Comm) watch(now time.Time, ago time.Duration, occupied map[*link.Link]bool) (next time.Duration) {
	c.mu.Lock()
	next, fx := c.watchLocked(now, ago, occupied)
	c.mu.Unlock()
	c.carryOut(fx)
	return next
}

func (c *Comm) watchLocked(now time.Time, ago time.Duration, occupied map[*link.Link]bool) (next time.Duration, fx *effects) {
	if c.calls.live == 0 {
		return untilWoken, nil
	}
	next = dozeMax
	stopped := max(0, ago-tickCreditMax)
	if len(occupied) > 0 && slices.ContainsFunc(c.linkTo, func(l *link.Link) bool { return occupied[l] }) {
		stopped = ago
	}
	ago -= stopped
	if stopped > 0 {
		c.postponeLocked(stopped)
	}
	var late *Op
	working := c.workingLocked()
	c.calls.each(func(op *Op) { // It allocates lists of ranks only.
		if stopped > 0 && !op.progressAt.IsZero() {
			op.progressAt = op.progressAt.Add(stopped)
		}
		progress, isWorking := op.exec.ProgressLocked()
		if op.state != running || isWorking || op.call.Seq > working {
			op.progressAt, next = time.Time{}, min(next, c.watchTick())
			return
		}
		op.waitedLocked(ago)
		switch {
		case op.progressAt.IsZero() || progress != op.progress:
			pause := queryAfter << skippedRounds(len(c.linkTo))
			op.progressAt, op.progress, op.search = now, progress, search{next: pause, pause: pause}
		case op.work.Timeout > 0 && now.Sub(op.progressAt) >= op.work.Timeout:
			if late == nil || op.call.Seq < late.call.Seq {
				late = op // Later operations may wait only for this one.
			}
		default:
			if op.search.stalled += ago; op.search.stalled >= op.search.next {
				fx = fx.orNew()
				op.queryLocked(fx, now)
			}
		}
		next = min(next, op.nextCheckLocked(now))
	})
	if late != nil {
		fx = fx.orNew()
		err := c.timeoutLocked(late, now)
		c.revokeLocked(fx, err, wire.Revoke{Cause: wire.CauseTimeout}, err.Error())
	}
	return next, fx
}

// workingLocked returns the sequence number of the first operation that this rank works on, or the largest number without one.
// Later operations do not wait for other ranks meanwhile: the function of a reduction runs on the goroutine that reads a
// link, which then reads no frame for them. See [Engine.occupy] for those of other communicators.
func (c *Comm) workingLocked() uint64 {
	first := uint64(math.MaxUint64)
	c.calls.each(func(op *Op) {
		if _, working := op.exec.ProgressLocked(); working && op.state == running {
			first = min(first, op.call.Seq)
		}
	})
	return first
}

// postponeLocked shifts the times of unanswered queries, so that d is not charged to their ranks.
func (c *Comm) postponeLocked(d time.Duration) {
	for rank, a := range c.answers {
		if !a.asked.IsZero() {
			a.asked = a.asked.Add(d)
			c.answers[rank] = a
		}
	}
}

// nextCheckLocked returns the time until an operation has to be checked.
func (op *Op) nextCheckLocked(now time.Time) time.Duration {
	still := now.Sub(op.progressAt)
	next := dozeMax
	if still < dozeAfter>>skippedRounds(op.comm.Size()) {
		next = op.comm.watchTick()
	}
	if op.work.Timeout > 0 {
		next = min(next, op.work.Timeout-still)
	}
	if s := &op.search; len(s.ask) > 0 {
		next = min(next, s.next-s.stalled)
	}
	return next
}

// watchTick returns the interval at which operations that run are checked.
func (c *Comm) watchTick() time.Duration { return watchTick << skippedRounds(c.Size()) }

// skippedRounds returns the number of rounds of queries that operations of many ranks omit. While many ranks start on a
// few processors, every operation waits for longer than queryAfter, and queries and checks would take the
// processors' time.
func skippedRounds(size int) int {
	return min(max(bits.Len(uint(size-1))-bits.Len(uint(queryFew-1)), 0), skippedMax)
}

// queryLocked queries the next ranks.
func (op *Op) queryLocked(fx *effects, now time.Time) {
	c, s := op.comm, &op.search
	if len(s.ask) == 0 {
		if s.rounds++; s.rounds == 2 {
			s.rounds += skippedRounds(len(c.linkTo)) // From now on rounds have the same times among any number of ranks.
		}
		s.ask = c.queriedLocked(op.exec.WaitsForLocked(), s.rounds)
	}
	some := min(queriesAtOnce, len(s.ask))
	for _, rank := range s.ask[:some] {
		if a := c.answers[rank]; a.asked.IsZero() {
			a.asked = now
			c.answers[rank] = a
		}
		c.query(fx, rank, op.call.Call)
	}
	s.ask, s.stalled, s.next = s.ask[some:], 0, queriesPause
	if len(s.ask) == 0 {
		s.all = s.rounds > 1
		s.pause = min(2*s.pause, queryMax)
		s.next = s.pause
	}
}

// query asks a rank for its last call, on behalf of the operation with a call.
func (c *Comm) query(fx *effects, rank int, call wire.Call) {
	l := c.linkTo[rank]
	fx.calls = append(fx.calls, func() { l.Query(wire.Query{Call: call}) })
}

// timeoutLocked returns the error of a timeout, with the ranks that delay op. These are first the
// ranks that do not answer, and of those in no call the ones that have made the fewest; then
// the ranks that op waits for itself and that have not reached it, perhaps since they wait for
// others. If there are none, the error names the ranks that op waits for itself.
func (c *Comm) timeoutLocked(op *Op, now time.Time) *TimeoutError {
	direct := c.answersLocked(op, op.exec.WaitsForLocked(), now)
	all := direct
	if op.search.all {
		all = c.answersLocked(op, slices.Collect(maps.Keys(c.answers)), now)
	}
	fewest := op.call.Seq
	for _, w := range all {
		if w.Known && !w.Unresponsive && !w.Active {
			fewest = min(fewest, w.Last.Seq)
		}
	}
	delays := func(w Waiting) bool {
		return !w.Known || w.Unresponsive || !w.Active && w.Last.Seq <= fewest && w.Last.Seq != op.call.Seq
	}
	var waiting []Waiting
	for _, w := range all {
		if delays(w) {
			waiting = append(waiting, w)
		}
	}
	for _, w := range direct {
		if !delays(w) && (w.Last.Seq < op.call.Seq || w.Last.Seq == op.call.Seq && w.Last.Op != op.call.Op) {
			waiting = append(waiting, w)
		}
	}
	if len(waiting) == 0 {
		waiting = direct
	}
	e := &TimeoutError{Call: op.call.Call, After: op.work.Timeout, Waiting: waiting}
	if s := c.engine.stalls.Load(); s != nil && c.traced != nil {
		s.explainTimeout(c, e)
	}
	return e
}

// answersLocked returns the last answers of ranks to queries, in the order of ranks. An answer to
// a query of a later operation counts: op had begun by then. A rank in a later call has made the
// call of op.
func (c *Comm) answersLocked(op *Op, ranks []int, now time.Time) []Waiting {
	var list []Waiting
	for _, rank := range slices.Sorted(slices.Values(ranks)) {
		w := Waiting{Rank: c.member(rank)}
		a := c.answers[rank]
		if w.Unresponsive = !a.asked.IsZero() && now.Sub(a.asked) >= unresponsiveAfter; w.Unresponsive {
			w.Silent = now.Sub(a.asked)
		}
		if !a.at.IsZero() {
			w.Silent = max(0, now.Sub(a.at))
			w.Known, w.Active, w.Last = a.Seq >= op.call.Seq, a.Active, a.Last
			if a.For > 0 {
				w.For = time.Duration(min(a.For, math.MaxInt64/2)) + w.Silent
			}
		}
		list = append(list, w)
	}
	return list
}
