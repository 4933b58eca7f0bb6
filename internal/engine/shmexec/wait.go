package shmexec

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// spinsAlone is the number of reads of a counter before the processor is
	// yielded, if ranks have a processor each, and spinsCrowded if not:
	// then the awaited rank may need this very processor. Whether a wait ends while
	// this rank spins shows which is the case; that is tried once in spinsTrial waits.
	spinsAlone   = 5000
	spinsCrowded = 50
	spinsTrial   = 64
	// yieldsWithin and yieldsAcross are the smallest numbers of yields before the rank
	// goes to sleep, which costs little within a process.
	yieldsWithin = 64
	yieldsAcross = 200
	// yieldTime is the shortest time of yielding, since there may be nothing else to
	// run: to sleep and to be woken takes long, within a process as well, which
	// sends its threads to sleep, and a rank that is woken may run on another
	// processor.
	yieldTime = 200 * time.Microsecond
	// With more than crowdMost ranks for each processor yielding does not help, and a
	// rank sleeps after yieldsCrowd.
	crowdMost   = 4
	yieldsCrowd = 8
	// pollYields is the number of yields between two calls of poll.
	pollYields = 16
	// A sleeping rank checks after sleepFirst, then after twice that, up
	// to sleepMax: each time costs some hundred microseconds of Go's own. From sleepDeep
	// on it is woken when its context ends.
	sleepFirst = 2 * time.Millisecond
	sleepDeep  = 16 * time.Millisecond
	sleepMax   = 128 * time.Millisecond
)

// wait waits until a counter of a rank has come to a value.
func (b *Board) wait(ctx context.Context, w *work, at *atomic.Uint32, value uint32, rank int) error {
	if b.spin(at, value) {
		return nil
	}
	b.setAwaited(awaited{rank, at, value})
	defer b.setAwaited(awaited{})
	b.place.Settle()
	var began time.Time
	for i := 1; ; i++ {
		b.yield()
		if int32(at.Load()-value) >= 0 {
			return nil
		}
		if i%pollYields == 0 {
			if err := w.poll(ctx); err != nil {
				return err
			}
			if began.IsZero() {
				began = time.Now()
			}
			if i >= b.yields && time.Since(began) >= b.yieldTime {
				return b.sleep(ctx, w, at, value, rank)
			}
		}
	}
}

// spin reads a counter for a while, if that has succeeded before.
func (b *Board) spin(at *atomic.Uint32, value uint32) bool {
	for range spinsCrowded {
		if int32(at.Load()-value) >= 0 {
			return true
		}
	}
	if b.waits++; b.crowded || !b.alone && b.waits%spinsTrial != 0 {
		return false
	}
	for range spinsAlone {
		if int32(at.Load()-value) >= 0 {
			b.alone = true
			return true
		}
	}
	b.alone = false
	return false
}

// sleep is wait for a wait that takes long. A rank that raises a counter wakes the
// ranks that have announced that they sleep on it: either it sees the announcement, or
// the sleeper, which announces first, sees the counter.
func (b *Board) sleep(ctx context.Context, w *work, at *atomic.Uint32, value uint32, rank int) error {
	b.place.Away()
	b.sleepsOn.Store(at)
	defer b.sleepsOn.Store(nil)
	b.asleep.Store(uint32(rank) + 1)
	defer b.asleep.Store(0)
	for d := sleepFirst; ; d = min(2*d, sleepMax) {
		if d == sleepDeep {
			defer context.AfterFunc(ctx, b.Interrupt)()
		}
		if err := w.poll(ctx); err != nil {
			return err
		}
		now := at.Load()
		if int32(now-value) >= 0 {
			return nil
		}
		b.cfg.Sleep(at, now, d)
	}
}

// raise sets a counter of this rank and wakes those that wait for it.
func (b *Board) raise(w *atomic.Uint32, value uint32) {
	w.Store(value)
	b.rouse(w)
}

// rouse wakes those that sleep on a counter of this rank.
func (b *Board) rouse(w *atomic.Uint32) {
	for _, asleep := range b.asleeps {
		if asleep.Load() == uint32(b.cfg.Rank)+1 {
			b.cfg.Wake(w)
			return
		}
	}
}
