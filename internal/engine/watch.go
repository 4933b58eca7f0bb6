package engine

import (
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// watchTick is how often operations that run are looked at.
	watchTick = 20 * time.Millisecond
	// dozeAfter is for how long all of them have to stand still to be looked at just
	// when one of them may time out or has to ask, or after dozeMax: each look takes
	// a part of a millisecond of Go's own. One that has moved meanwhile may time out as
	// much later.
	dozeAfter = time.Second
	dozeMax   = 250 * time.Millisecond
	// watchIdle is after how many ticks without an operation the watch goes
	// to sleep.
	watchIdle = 50
	// probeAfter is how long an operation makes no progress before the ranks
	// that it waits for are asked where they are. It doubles up to probeMax.
	probeAfter = 40 * time.Millisecond
	probeMax   = 2 * time.Second
	// livedMax is how much at most of the time between two looks counts. When there
	// was more, this process was stopped, or its machine, perhaps with all others.
	livedMax = 2 * dozeMax
	// muteAfter is for how long a rank that has been asked owes an answer that is taken
	// for silence.
	muteAfter = probeMax
	// askedMost is how many ranks are asked at a time. Were all of many ranks
	// to ask all others at once, that would be what they wait for.
	askedMost = 8
	askedNext = 2 * probeAfter // until more are asked
)

// A search is how far an operation that stands still has asked others where they
// are: first the ranks that it waits for, and from the second round on all,
// since those that are waited for may wait for others.
type search struct {
	stalled time.Duration // since ranks were asked, or since there was progress
	next    time.Duration // when more are asked
	pause   time.Duration // until the next round
	rounds  int           // that have begun
	all     bool          // whether all ranks have been asked
	ask     []int         // who is still to be asked in this round
}

// begin counts an operation in, and wakes the watch if it sleeps.
func (e *Engine) begin() {
	e.active.Add(1)
	e.begun.Add(1)
	if e.parked.Load() {
		e.rouse()
		e.clock.Now()
	}
}

// rouse wakes the watch.
func (e *Engine) rouse() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// watch looks after operations that make no progress, until Close.
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
			e.parked.Store(true) // From now on what begins wakes it.
			if e.begun.Load() != begun {
				next = watchTick // It may have begun since the look.
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
// that has made another call answers to that with a mismatch. It returns after how
// long to look again, if nothing begins before. The last look was so long ago.
func (c *Comm) watch(now time.Time, ago time.Duration) (next time.Duration) {
	next = dozeMax
	stopped := max(0, ago-livedMax)
	ago -= stopped
	var late *Op
	c.mu.Lock()
	if stopped > 0 {
		c.excuse(stopped)
	}
	c.ops.each(func(op *Op) {
		if stopped > 0 && !op.moved.IsZero() {
			op.moved = op.moved.Add(stopped)
		}
		if op.failing || op.isWorkedOn() {
			op.moved, next = time.Time{}, watchTick
			return
		}
		switch p := op.measure(); {
		case op.moved.IsZero() || p != op.progress:
			op.moved, op.progress, op.search = now, p, search{next: probeAfter, pause: probeAfter}
		case op.work.Timeout > 0 && now.Sub(op.moved) >= op.work.Timeout:
			if late == nil || op.call.Seq < late.call.Seq {
				late = op // Those after it may wait for nothing else.
			}
		default:
			if op.search.stalled += ago; op.search.stalled >= op.search.next {
				op.probe(now)
			}
		}
		next = min(next, op.rest(now))
	})
	if late != nil { // before the lock is given up, or it could end meanwhile
		err := c.timeout(late, now)
		c.endAll(err, wire.Revoke{Cause: wire.CauseTimeout}, err.Error())
	}
	c.mu.Unlock()
	return next
}

// isWorkedOn reports whether this node has an operation in its hands, or on a board one
// before it: then it does not stand still.
func (op *Op) isWorkedOn() bool {
	if op.work.Shared != nil {
		return op.comm.board.Waiting() < 0
	}
	return op.busy > 0
}

// excuse does not count some time against those who owe an answer.
func (c *Comm) excuse(d time.Duration) {
	for rank, a := range c.where {
		if !a.asked.IsZero() {
			a.asked = a.asked.Add(d)
			c.where[rank] = a
		}
	}
}

// rest is for how long an operation need not be looked at.
func (op *Op) rest(now time.Time) time.Duration {
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

// measure is a number that changes as the operation makes progress.
func (op *Op) measure() int {
	if op.work.Shared != nil {
		return int(op.comm.board.Progress())
	}
	p := len(op.slots) - op.remaining
	for i := range op.sinks {
		if s := &op.sinks[i]; s.Owner != nil {
			p += op.comm.links[op.move(i).Peer].Filling(s)
		}
	}
	for i := range op.transfers {
		if t := &op.transfers[i]; t.Owner != nil {
			p += op.comm.links[op.move(i).Peer].Delivering(t)
		}
	}
	return p
}

// probe asks some ranks where they are.
func (op *Op) probe(now time.Time) {
	c, s := op.comm, &op.search
	if len(s.ask) == 0 {
		s.rounds++
		if s.ask = op.waitsFor(); s.rounds > 1 {
			s.ask = c.others()
		}
	}
	some := min(askedMost, len(s.ask))
	for _, rank := range s.ask[:some] {
		if a := c.where[rank]; a.asked.IsZero() {
			a.asked = now
			c.where[rank] = a
		}
		c.links[rank].Probe(wire.Probe{Call: op.call})
	}
	s.ask, s.stalled, s.next = s.ask[some:], 0, askedNext
	if len(s.ask) == 0 {
		s.all = s.rounds > 1
		s.pause = min(2*s.pause, probeMax)
		s.next = s.pause
	}
}

// others are all ranks but this one, beginning with the next.
func (c *Comm) others() []int {
	ranks := make([]int, 0, len(c.links))
	for i := range len(c.links) - 1 {
		ranks = append(ranks, (c.rank+1+i)%len(c.links))
	}
	return ranks
}

// timeout says who keeps op from its end: the ranks that do not answer, or not any
// more, and of those that are in no call the ones that have made the fewest. After them
// come those that op waits for itself and that have not come to it, perhaps since they
// wait for others. If there is none of all these, it is the ranks that op waits for
// itself.
func (c *Comm) timeout(op *Op, now time.Time) *TimeoutError {
	direct := c.answers(op, op.waitsFor(), now)
	all := direct
	if op.search.all {
		all = c.answers(op, c.others(), now)
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

// answers is what ranks have told of themselves, in their order. All operations
// that stand still ask, and of each rank its last word is kept: one that a later
// operation has asked for came after op had begun as well. A rank whose Last is
// a later call has made that of op, too.
func (c *Comm) answers(op *Op, ranks []int, now time.Time) []Waiting {
	var list []Waiting
	for _, rank := range ranks {
		w := Waiting{Rank: rank}
		if a := c.where[rank]; !a.at.IsZero() {
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
