package recorder

import (
	"sync/atomic"
	"time"
)

// A Clock returns the start and end times of operations, in nanoseconds since NewClock. Reading
// the clock of the system would take a noticeable part of a short operation, which uses Recent
// instead.
type Clock struct {
	base   time.Time
	recent atomic.Int64
}

// NewClock returns a Clock that starts now.
func NewClock() *Clock { return &Clock{base: time.Now()} }

// Now reads the clock of the system.
func (c *Clock) Now() int64 {
	now := int64(time.Since(c.base))
	c.recent.Store(now)
	return now
}

// Recent returns the result of the latest call of Now.
func (c *Clock) Recent() int64 { return c.recent.Load() }

// Time converts a value of the Clock to a time of the system.
func (c *Clock) Time(at int64) time.Time { return c.base.Add(time.Duration(at)).Round(0) }
