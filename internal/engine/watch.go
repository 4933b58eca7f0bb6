package engine

import (
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// watchTick is how often operations that run are looked at. It is the
	// accuracy of their timeouts.
	watchTick = 20 * time.Millisecond
	// watchIdle is after how many ticks without an operation the watch goes
	// to sleep.
	watchIdle = 50
	// probeAfter is how long an operation makes no progress before the ranks
	// that it waits for are asked where they are. It doubles up to probeMax.
	probeAfter = 40 * time.Millisecond
	probeMax   = 2 * time.Second
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
	idle := 0
	for {
		select {
		case <-e.stop:
			return
		case now := <-t.C:
			e.clock.Now()
			e.each(func(c *Comm) { c.watch(now) })
		}
		if idle++; e.active.Load() > 0 {
			idle = 0
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
	}
}

// watch times operations out, and probes for those that stand still. A rank
// that has made another call answers to that with a mismatch.
func (c *Comm) watch(now time.Time) {
	var late *Op
	c.mu.Lock()
	c.ops.each(func(op *Op) {
		if op.failing || op.busy > 0 && (op.work.Shared == nil || c.board.Waiting() < 0) {
			return // What is worked on here does not stand still.
		}
		switch p := op.measure(); {
		case op.moved.IsZero() || p != op.progress:
			op.moved, op.progress, op.search = now, p, search{next: probeAfter, pause: probeAfter}
		case op.work.Timeout > 0 && now.Sub(op.moved) >= op.work.Timeout:
			if late == nil || op.call.Seq < late.call.Seq {
				late = op // Those after it may wait for nothing else.
			}
		default:
			if op.search.stalled += watchTick; op.search.stalled >= op.search.next {
				op.probe()
			}
		}
	})
	if late != nil { // before the lock is given up, or it could end meanwhile
		err := c.timeout(late, now)
		c.endAll(err, wire.Revoke{Cause: wire.CauseTimeout}, err.Error())
	}
	c.mu.Unlock()
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
func (op *Op) probe() {
	c, s := op.comm, &op.search
	if len(s.ask) == 0 {
		s.rounds++
		if s.ask = op.waitsFor(); s.rounds > 1 {
			s.ask = c.others()
		}
	}
	now := min(askedMost, len(s.ask))
	for _, rank := range s.ask[:now] {
		c.links[rank].Probe(wire.Probe{Call: op.call})
	}
	s.ask, s.stalled, s.next = s.ask[now:], 0, askedNext
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

// timeout says who keeps op from its end: the ranks that have not answered,
// and of those that are in no call the ones that have made the fewest. After them
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
		if w.Known && !w.Active {
			fewest = min(fewest, w.Last.Seq)
		}
	}
	isGuilty := func(w Waiting) bool {
		return !w.Known || !w.Active && w.Last.Seq <= fewest && w.Last.Seq != op.call.Seq
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
		if a, known := c.where[rank]; known {
			w.Silent = max(0, now.Sub(a.at))
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
