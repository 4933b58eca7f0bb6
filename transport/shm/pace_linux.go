package shm

import (
	"sync/atomic"
	"time"
)

const (
	// glances are looks at memory before anything else is tried. They take
	// less time than it takes to read the clock.
	glances = 50
	// spinMax is how long a goroutine yields the processor rather than park.
	// To park and be woken takes both sides ten microseconds, which is less;
	// but where ranks outnumber cores, each of them waits until all others have
	// been woken, and none would learn how short the wait were if nobody parked.
	// Eight processes on two cores: 13 µs for a round trip to all, not 100 µs.
	spinMax = 100 * time.Microsecond
	// waitMax is what a longer wait counts for, so that a few short ones
	// outweigh it.
	waitMax = 4 * spinMax
)

// A pace learns from how long one end of a pipe has had to wait whether to
// spin pays. Its zero value is confident.
type pace struct{ mean time.Duration }

func (p *pace) learn(wait time.Duration) { p.mean += (min(wait, waitMax) - p.mean) / 4 }

// spin is how long to spin before it is time to park: for most, or not at all.
func (p *pace) spin(most time.Duration) time.Duration {
	if p.mean > most {
		return 0
	}
	return most
}

// Spinners are the goroutines of a node that spin. More than there are
// processors for would only keep others from running.
type spinners struct {
	most int32
	n    atomic.Int32
}

func (s *spinners) enter() bool {
	if s.n.Add(1) <= s.most {
		return true
	}
	s.n.Add(-1)
	return false
}

func (s *spinners) leave() { s.n.Add(-1) }
