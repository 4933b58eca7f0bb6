package link

import (
	"sync/atomic"
	"time"
)

// stallAfter is the time without progress after which a link stalls.
const stallAfter = time.Second

// A stall is the time without progress of a link with waiting data.
type stall struct {
	moved uint64       // see exchange.progress
	still atomic.Int64 // the time without progress, as a time.Duration
	count atomic.Uint64
}

// progress returns the number of bytes that pipes of the data and bulk lanes have taken, and whether others wait.
func (x *exchange) progress() (moved uint64, waits bool) {
	o, b := &x.data, &x.bulk
	o.mu.Lock()
	moved, waits = o.sent, o.to != nil && (o.to.writing || len(o.pending) > 0)
	o.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	moved += b.sent
	for _, w := range b.writers {
		moved, waits = moved+w.sent, waits || w.load > 0
	}
	return moved, waits
}

// CheckStall notes whether the link has made progress since the last check, which was so long ago. One goroutine calls it.
func (l *Link) CheckStall(ago time.Duration) {
	x := l.with.Load()
	if x == nil {
		return
	}
	s := &x.stall
	moved, waits := x.progress()
	if !waits && l.IsPending() {
		waits = l.IsNeeded()
	}
	before := time.Duration(s.still.Load())
	switch {
	case !waits || moved != s.moved:
		s.moved = moved
		s.still.Store(0)
	default:
		s.still.Store(int64(before + ago))
		if before < stallAfter && before+ago >= stallAfter {
			s.count.Add(1)
		}
	}
}

// Stalls returns how often the link has stalled, and for how long it does now.
func (l *Link) Stalls() (count uint64, still time.Duration) {
	x := l.with.Load()
	if x == nil {
		return 0, 0
	}
	if still = time.Duration(x.stall.still.Load()); still < stallAfter {
		still = 0
	} else if _, waits := x.progress(); !waits && !(l.IsPending() && l.IsNeeded()) { // There were no checks since.
		still = 0
	}
	return x.stall.count.Load(), still
}

// Connections returns the number of connections that the link has, or has had.
func (l *Link) Connections() int {
	l.ending.Lock()
	defer l.ending.Unlock()
	n := int(l.turn)
	if !l.IsPending() {
		n++
	}
	return n
}
