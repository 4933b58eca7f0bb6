package trace

import (
	"sync/atomic"
	"time"
)

// A Clock tells when operations begin and end, in nanoseconds since it was made.
// To look at the clock of the system takes longer than a part of some operations
// that would not count: those take the time at which somebody has looked last.
type Clock struct {
	base   time.Time
	recent atomic.Int64
}

// NewClock makes a Clock.
func NewClock() *Clock { return &Clock{base: time.Now()} }

// Now looks at the clock.
func (c *Clock) Now() int64 {
	now := int64(time.Since(c.base))
	c.recent.Store(now)
	return now
}

// Recent is when somebody has called Now last.
func (c *Clock) Recent() int64 { return c.recent.Load() }

// Time is the time of the system at which the Clock had this value.
func (c *Clock) Time(at int64) time.Time { return c.base.Add(time.Duration(at)).Round(0) }
