// Package ntstore writes to memory that others read.
//
// The lines there lie in caches of those who have read them last. If these are far
// away, as those of another socket or another group of cores are, an ordinary store
// takes so long to get its line that it is several times as fast to write past the
// caches, for readers to get it from memory. Where they are near it is slower. Which
// of it is so shows in how fast a Pen is; a system may also move whoever uses it.
//
// Most callers keep a Pen for a place that is written in a round, call Turn before
// each part of it, and Write. A Pen is for one goroutine at a time.
package ntstore

import "time"

const (
	// longBytes is what is long enough for how it is written to matter.
	longBytes = 16 << 10
	// slowKiB is how long a KiB may take, at 4 GB/s. Where it shares a cache with the
	// readers a processor writes twice as fast at least, and otherwise half as fast.
	slowKiB = 256 * time.Nanosecond
	// A write in so many is measured, and so many of these in a row have to be slow.
	trialEvery = 4
	trials     = 3
	// For how many turns it writes past the caches, at first and at most.
	turnsFirst = 64
	turnsMost  = 4096
)

// A Pen copies bytes to where others read them.
type Pen struct {
	past   func(dst, src []byte)
	writes int // that were long
	slow   int // of those that were measured, in a row
	turns  int // for which it goes past the caches
	next   int // for how many the next time
}

// New makes a Pen. Past copies past the caches, in such a way that what is stored
// later is seen later; nil if that cannot be done.
func New(past func(dst, src []byte)) Pen { return Pen{past: past} }

// Turn begins the next part.
func (p *Pen) Turn() {
	if p.turns > 0 {
		p.turns--
	}
}

// Write copies src to dst, which is as long.
func (p *Pen) Write(dst, src []byte) {
	switch {
	case len(src) < longBytes:
		copy(dst, src)
	case p.turns > 0:
		p.past(dst, src)
	default:
		p.try(dst, src)
	}
}

// Put is Write for a short part of what is long.
func (p *Pen) Put(dst, src []byte) {
	if p.turns > 0 {
		p.past(dst, src)
		return
	}
	copy(dst, src)
}

// Pass has the next so many turns go past the caches, if that can be done.
func (p *Pen) Pass(turns int) {
	if p.past != nil {
		p.turns = turns
	}
}

// try writes in the ordinary way, and now and then looks how long that takes.
func (p *Pen) try(dst, src []byte) {
	if p.writes++; p.writes%trialEvery != 0 {
		copy(dst, src)
		return
	}
	began := time.Now()
	copy(dst, src)
	p.learn(len(src), time.Since(began))
}

func (p *Pen) learn(bytes int, took time.Duration) {
	if took <= time.Duration(bytes>>10)*slowKiB {
		p.slow, p.next = 0, 0
		return
	}
	if p.slow++; p.slow == trials {
		p.slow = 0
		turns := max(p.next, turnsFirst)
		p.Pass(turns)
		p.next = min(2*turns, turnsMost)
	}
}
