//go:build linux

package rdma

import (
	"fmt"
	"time"
)

// stallTicks is the number of checks of a queue pair without progress before it is given up. A process that was stopped meanwhile
// makes only one of them, so that its pause is no failure of the queue pair.
const stallTicks = 8

// defaultStall returns the default of Config.Stall for a node that counts a peer as failed after timeout, which is 0 if it is
// not known. Up to two beat intervals may pass between the last beat that has arrived and the first request that does not complete.
func defaultStall(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return stallMax
	}
	return min(timeout/4, stallMax)
}

// A stall detects that the requests of a QP neither complete nor fail. The specification of RDMA excludes that; it happens with the
// software RDMA of Linux when packets are lost. The mutex of the conn guards the fields.
type stall struct {
	timer *time.Timer // calls checkStall
	runs  bool        // the timer
	ended uint64      // requests that have ended
	seen  uint64      // ended at the last check
	ticks int         // checks without progress
}

// watchLocked starts the checks after a request was posted. They end when no request is left.
func (c *conn) watchLocked() {
	s := &c.stall
	if s.runs || c.err != nil {
		return
	}
	s.runs, s.seen, s.ticks = true, s.ended, 0
	s.timer.Reset(c.t.cfg.Stall / stallTicks)
}

// checkStall ends the conn if the requests of its QP make no progress.
func (c *conn) checkStall() {
	c.mu.Lock()
	c.stall.runs = false
	var broken error
	if c.err == nil {
		broken = c.pollLocked() // The last completion may have had no poller.
	}
	if broken == nil && c.err == nil && len(c.freeReqs) < len(c.requests) {
		broken = c.countStallLocked()
	}
	c.mu.Unlock()
	if broken != nil {
		c.end(broken)
	}
}

// countStallLocked counts a check of a QP that has requests. It returns an error if the QP has stalled.
func (c *conn) countStallLocked() error {
	s := &c.stall
	if s.ticks++; s.ended != s.seen {
		s.ticks = 0
	}
	if s.ticks == stallTicks {
		return c.failed(fmt.Errorf("none of %d work requests has completed in %v", len(c.requests)-len(c.freeReqs), c.t.cfg.Stall))
	}
	s.runs, s.seen = true, s.ended
	s.timer.Reset(c.t.cfg.Stall / stallTicks)
	return nil
}
