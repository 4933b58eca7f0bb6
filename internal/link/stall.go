package link

import (
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// A stall is the time without progress of a link with waiting data. After trace.StalledAfter it is counted, for those who watch. Transports end
// connections that stall.
type stall struct {
	waits bool         // data waited at the last check
	moved uint64       // Traffic.moved then
	still atomic.Int64 // the time without progress, as a time.Duration
	count atomic.Uint64
}

// waits reports whether data of the link waits for a pipe or a connection.
func (l *Link) waits(t Traffic) bool { return t.waits || l.IsPending() && l.IsNeeded() }

// CheckStall notes whether the link has made progress since the last check, which was so long ago. One goroutine calls it.
func (l *Link) CheckStall(ago time.Duration) {
	x := l.exchanged.Load()
	if x == nil {
		return
	}
	s := &x.stall
	t := l.Traffic()
	waits := l.waits(t)
	if !waits || !s.waits || t.moved != s.moved {
		s.waits, s.moved = waits, t.moved
		s.still.Store(0)
		return
	}
	still := time.Duration(s.still.Add(int64(ago)))
	if still >= trace.StalledAfter && still-ago < trace.StalledAfter {
		s.count.Add(1)
	}
}

// Stalls returns how often the link has stalled, and for how long it does now.
func (l *Link) Stalls() (count uint64, still time.Duration) {
	x := l.exchanged.Load()
	if x == nil {
		return 0, 0
	}
	if still = time.Duration(x.stall.still.Load()); still < trace.StalledAfter || !l.waits(l.Traffic()) { // There may be no checks any more.
		still = 0
	}
	return x.stall.count.Load(), still
}

// Connections returns the number of connections that the link has, or has had.
func (l *Link) Connections() int {
	x := l.exchanged.Load()
	if x == nil {
		return 0
	}
	l.ending.Lock()
	defer l.ending.Unlock()
	n := x.session.Ended()
	if !l.IsPending() {
		n++
	}
	return n
}
