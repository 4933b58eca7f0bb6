package engine

import (
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// watchTick is how often the watchdog checks operations that run.
	watchTick = 20 * time.Millisecond
	// Once all operations have stood still for dozeAfter, they are checked when one of
	// them may time out or has to send probes, or after dozeMax: each check takes a
	// part of a millisecond of Go's own. An operation that has moved meanwhile may time
	// out as much later.
	dozeAfter = time.Second
	dozeMax   = 250 * time.Millisecond
	// watchIdle is after how many ticks without an operation the watchdog goes
	// to sleep.
	watchIdle = 50
	// probeAfter is how long an operation makes no progress before the ranks
	// that it waits for are probed. It doubles up to probeMax.
	probeAfter = 40 * time.Millisecond
	probeMax   = 2 * time.Second
	// tickCreditMax caps the time that is charged between two checks. If more has
	// passed, this process was stopped, or its machine, perhaps with all others.
	tickCreditMax = 2 * dozeMax
	// muteAfter is how long a rank may owe the answer to a probe before it counts as
	// silent.
	muteAfter = probeMax
	// probesAtOnce is how many ranks are probed at a time. If all of many ranks
	// probed all others at once, the probes would be what they wait for.
	probesAtOnce = 8
	probesPause  = 2 * probeAfter // until more are probed
)

// A search is how far an operation that stands still has probed others: first the
// ranks that it waits for, and from the second round on all, since those may wait for
// others.
type search struct {
	stalled time.Duration // since ranks were probed, or since there was progress
	next    time.Duration // when more are probed
	pause   time.Duration // until the next round
	rounds  int           // that have begun
	all     bool          // whether all ranks have been probed
	ask     []int         // ranks that are still to be probed in this round
}

// begin counts an operation in, and wakes the watchdog if it sleeps.
func (e *Engine) begin() {
	e.active.Add(1)
	e.begun.Add(1)
	if e.parked.Load() {
		e.wakeWatchdog()
		e.clock.Now()
	}
}

func (e *Engine) wakeWatchdog() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// watch checks operations that make no progress, until Close.
func (e *Engine) watch(t *time.Ticker) {
	defer t.Stop()
	idle, last := 0, time.Now()
	for {
		next, begun := dozeMax, e.begun.Load()
		select {
		case <-e.stop:
			return
		case <-e.wake:
			next = watchTick
		case now := <-t.C:
			e.clock.Now()
			e.each(func(c *Comm) { next = min(next, c.watch(now, now.Sub(last))) })
			last = now
		}
		if idle++; e.active.Load() > 0 {
			idle = 0
		}
		if idle > 0 || next < watchTick {
			next = watchTick
		}
		switch {
		case next > watchTick:
			e.parked.Store(true) // From now on an operation that begins wakes it.
			if e.begun.Load() != begun {
				next = watchTick // It may have begun since the check.
				e.parked.Store(false)
			}
			t.Reset(next)
		case e.parked.Load():
			e.parked.Store(false)
			t.Reset(watchTick)
		}
		if idle < watchIdle {
			continue
		}
		t.Stop()
		e.parked.Store(true)
		if e.active.Load() == 0 {
			select {
			case <-e.stop:
				return
			case <-e.wake:
			}
		}
		e.parked.Store(false)
		idle = 0
		t.Reset(watchTick)
		last = time.Now()
	}
}

// watch times operations out, and probes for those that stand still. A rank
// that has made another call answers a probe with a mismatch. It returns after how
// long to check again, if nothing begins before. The last check was so long ago.
func (c *Comm) watch(now time.Time, ago time.Duration) (next time.Duration) {
	var fx *effects
	c.mu.Lock()
	next, fx = c.watchLocked(now, ago)
	c.mu.Unlock()
	c.carryOut(fx)
	return next
}

func (c *Comm) watchLocked(now time.Time, ago time.Duration) (next time.Duration, fx *effects) {
	next = dozeMax
	if c.calls.live == 0 {
		return next, nil
	}
	fx = new(effects)
	stopped := max(0, ago-tickCreditMax)
	ago -= stopped
	if stopped > 0 {
		c.excuseLocked(stopped)
	}
	var late *Op
	c.calls.each(func(op *Op) {
		if stopped > 0 && !op.moved.IsZero() {
			op.moved = op.moved.Add(stopped)
		}
		progress, working := op.exec.ProgressLocked()
		if op.state != running || working {
			op.moved, next = time.Time{}, watchTick
			return
		}
		switch {
		case op.moved.IsZero() || progress != op.progress:
			op.moved, op.progress, op.search = now, progress, search{next: probeAfter, pause: probeAfter}
		case op.work.Timeout > 0 && now.Sub(op.moved) >= op.work.Timeout:
			if late == nil || op.call.Seq < late.call.Seq {
				late = op // Those after it may wait for nothing else.
			}
		default:
			if op.search.stalled += ago; op.search.stalled >= op.search.next {
				op.probeLocked(fx, now)
			}
		}
		next = min(next, op.nextCheckLocked(now))
	})
	if late != nil {
		err := c.timeoutLocked(late, now)
		c.revokeLocked(fx, err, wire.Revoke{Cause: wire.CauseTimeout}, err.Error())
	}
	return next, fx
}

// excuseLocked does not charge some time to ranks that owe an answer.
func (c *Comm) excuseLocked(d time.Duration) {
	for rank, a := range c.answers {
		if !a.asked.IsZero() {
			a.asked = a.asked.Add(d)
			c.answers[rank] = a
		}
	}
}

// nextCheckLocked returns for how long an operation need not be checked.
func (op *Op) nextCheckLocked(now time.Time) time.Duration {
	still := now.Sub(op.moved)
	if still < dozeAfter {
		return watchTick
	}
	next := dozeMax
	if op.work.Timeout > 0 {
		next = op.work.Timeout - still
	}
	if s := &op.search; len(s.ask) > 0 {
		next = min(next, s.next-s.stalled)
	}
	return next
}

// probeLocked asks some ranks where they are.
func (op *Op) probeLocked(fx *effects, now time.Time) {
	c, s := op.comm, &op.search
	if len(s.ask) == 0 {
		s.rounds++
		if s.ask = op.exec.WaitsForLocked(); s.rounds > 1 {
			s.ask = c.others()
		}
	}
	some := min(probesAtOnce, len(s.ask))
	for _, rank := range s.ask[:some] {
		if a := c.answers[rank]; a.asked.IsZero() {
			a.asked = now
			c.answers[rank] = a
		}
		fx.probes = append(fx.probes, probe{rank, op.call})
	}
	s.ask, s.stalled, s.next = s.ask[some:], 0, probesPause
	if len(s.ask) == 0 {
		s.all = s.rounds > 1
		s.pause = min(2*s.pause, probeMax)
		s.next = s.pause
	}
}

// others returns all ranks but this one, beginning with the next.
func (c *Comm) others() []int {
	ranks := make([]int, 0, len(c.linkTo))
	for i := range len(c.linkTo) - 1 {
		ranks = append(ranks, (c.rank+1+i)%len(c.linkTo))
	}
	return ranks
}

// timeoutLocked says which ranks keep op from its end: those that do not answer, or
// have stopped to answer, and of those that are in no call the ones that have made the
// fewest. Next come those that op waits for itself and that have not come to it, perhaps
// since they wait for others. If there is none of all these, the error names the ranks
// that op waits for itself.
func (c *Comm) timeoutLocked(op *Op, now time.Time) *TimeoutError {
	direct := c.answersLocked(op, op.exec.WaitsForLocked(), now)
	all := direct
	if op.search.all {
		all = c.answersLocked(op, c.others(), now)
	}
	fewest := op.call.Seq
	for _, w := range all {
		if w.Known && !w.Mute && !w.Active {
			fewest = min(fewest, w.Last.Seq)
		}
	}
	isGuilty := func(w Waiting) bool {
		return !w.Known || w.Mute || !w.Active && w.Last.Seq <= fewest && w.Last.Seq != op.call.Seq
	}
	var waiting []Waiting
	for _, w := range all {
		if isGuilty(w) {
			waiting = append(waiting, w)
		}
	}
	for _, w := range direct {
		if !isGuilty(w) && w.Last.Seq < op.call.Seq {
			waiting = append(waiting, w)
		}
	}
	if len(waiting) == 0 {
		waiting = direct
	}
	return &TimeoutError{Call: op.call, After: op.work.Timeout, Waiting: waiting}
}

// answersLocked returns what ranks have told of themselves, in their order. All
// operations that stand still send probes, and of each rank its last answer is kept: an
// answer to a later operation was given after op had begun as well. A rank whose Last is
// a later call has made that of op, too.
func (c *Comm) answersLocked(op *Op, ranks []int, now time.Time) []Waiting {
	var list []Waiting
	for _, rank := range ranks {
		w := Waiting{Rank: rank}
		if a := c.answers[rank]; !a.at.IsZero() {
			w.Silent = max(0, now.Sub(a.at))
			w.Mute = !a.asked.IsZero() && now.Sub(a.asked) >= muteAfter
			w.Known, w.Active, w.Last = a.Seq >= op.call.Seq, a.Active, a.Last
			if a.For > 0 {
				w.For = time.Duration(min(a.For, math.MaxInt64/2)) + w.Silent
			}
		}
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b Waiting) int { return a.Rank - b.Rank })
	return list
}
