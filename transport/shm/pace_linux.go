package shm

import (
	"sync/atomic"
	"time"
)

const (
	// busyReads is the number of reads of a word before the goroutine waits in another way.
	// They take less time than reading the clock.
	busyReads = 50
	// spinMax is the longest time that a goroutine yields the processor before it parks.
	// Parking and waking take ten microseconds on both sides, which is less. But with more
	// ranks than processors, a rank waits until all others have been woken, and if none spun,
	// none would learn how short the wait is. With eight processes on two processors, a round
	// trip to all takes 13 µs instead of 100 µs.
	spinMax = 100 * time.Microsecond
	// waitMax caps the length of a wait, so that a few short waits outweigh one long wait.
	waitMax = 4 * spinMax
)

// A pace decides from the recent waits of one end of a pipe whether it spins.
type pace struct{ mean time.Duration }

func (p *pace) learn(wait time.Duration) { p.mean += (min(wait, waitMax) - p.mean) / 4 }

// newPace returns a pace that stops spinning after one long wait: a node that joins many others waits long on
// most of its pipes, and all nodes of the host would spin on all of theirs.
func newPace() pace { return pace{mean: spinMax} }

// spin returns the duration of spinning: limit or 0.
func (p *pace) spin(limit time.Duration) time.Duration {
	if p.mean > limit {
		return 0
	}
	return limit
}

// spinners limits the number of goroutines of a node that spin at a time. More than the number
// of processors would keep others from running.
type spinners struct {
	max int32
	n   atomic.Int32
}

func (s *spinners) begin() bool {
	if s.n.Add(1) <= s.max {
		return true
	}
	s.n.Add(-1)
	return false
}

func (s *spinners) end() { s.n.Add(-1) }
