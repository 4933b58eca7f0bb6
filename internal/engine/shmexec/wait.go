package shmexec

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/spin"
)

const (
	// spinsAlone is the number of reads of a counter before the rank yields the processor,
	// if each rank has its own. Otherwise it is spinsCrowded, since the awaited rank may need
	// this processor. One in spinsTrial waits spins longer: if the wait ends meanwhile,
	// this rank has a processor of its own.
	spinsAlone   = 5000
	spinsCrowded = 50
	spinsTrial   = 64
	// yieldsWithin and yieldsAcross are the smallest numbers of yields before the rank
	// sleeps. Within a process, sleeping costs less.
	yieldsWithin = 64
	yieldsAcross = 200
	// With more than ranksMax ranks for each processor, yielding does not help, and a rank
	// sleeps after yieldsMany yields.
	ranksMax   = 4
	yieldsMany = 8
	// pollYields is the number of yields between two calls of poll.
	pollYields = 16
	// A rank that raises a counter looks at wakeLooks ranks that may sleep on it. To look at more
	// takes longer than to wake them.
	wakeLooks = 16
	// A sleeping rank checks its counter after sleepFirst, and then after twice the time,
	// up to sleepMax. Each check costs some hundred microseconds of the Go runtime, so with more than
	// ranksMax ranks for each processor the first one is later, in proportion. From
	// sleepDeep on, the end of the context wakes the rank.
	sleepFirst = 10 * spin.Time
	sleepDeep  = 8 * sleepFirst
	sleepMax   = 64 * sleepFirst
)

// wait waits until a counter of a rank has reached a value. If it fails, the rank is still awaited.
func (m *Memory) wait(ctx context.Context, r *Execution, at *atomic.Uint32, value uint32, rank int) (err error) {
	if m.spin(at, value) {
		return nil
	}
	m.setAwaited(awaited{rank, at, value})
	defer func() {
		if err == nil {
			m.setAwaited(awaited{})
		}
	}()
	m.place.Settle()
	var began time.Time
	for i := 1; ; i++ {
		m.yield()
		if int32(at.Load()-value) >= 0 {
			return nil
		}
		if i%pollYields == 0 {
			if err := r.poll(ctx); err != nil {
				return err
			}
			if began.IsZero() {
				began = time.Now()
			}
			if i >= m.yields && time.Since(began) >= m.yieldTime {
				return m.sleep(ctx, r, at, value, rank)
			}
		}
	}
}

// spin reads a counter repeatedly. It gives up early if spinning has not succeeded before.
func (m *Memory) spin(at *atomic.Uint32, value uint32) bool {
	for range spinsCrowded {
		if int32(at.Load()-value) >= 0 {
			return true
		}
	}
	if m.waits++; m.crowded || !m.hasProcessor && m.waits%spinsTrial != 0 {
		return false
	}
	for range spinsAlone {
		if int32(at.Load()-value) >= 0 {
			m.hasProcessor = true
			return true
		}
	}
	m.hasProcessor = false
	return false
}

// sleep waits by sleeping. A rank that raises a counter wakes the ranks that have announced that
// they sleep on it: either it sees the announcement, or the sleeper, which announces first, sees
// the new value.
func (m *Memory) sleep(ctx context.Context, r *Execution, at *atomic.Uint32, value uint32, rank int) error {
	m.place.Away()
	m.sleepsOn.Store(at)
	defer m.sleepsOn.Store(nil)
	m.asleep.Store(uint32(rank) + 1)
	defer m.asleep.Store(0)
	isDeep := false
	for d := m.sleepFirst; ; d = min(2*d, sleepMax) {
		if d >= sleepDeep && !isDeep {
			isDeep = true
			defer context.AfterFunc(ctx, m.interrupt)()
		}
		if err := r.poll(ctx); err != nil {
			return err
		}
		now := at.Load()
		if int32(now-value) >= 0 {
			return nil
		}
		m.cfg.Sleep(at, now, d)
	}
}

// wakeSleepers wakes the ranks that sleep on a counter of this rank. Only the given ranks may wait for it.
func (m *Memory) wakeSleepers(w *atomic.Uint32, ranks []int) {
	for i, rank := range ranks {
		if i == wakeLooks || m.asleeps[rank].Load() == uint32(m.cfg.Rank)+1 {
			m.cfg.Wake(w)
			return
		}
	}
}
