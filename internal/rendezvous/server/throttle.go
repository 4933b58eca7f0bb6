package server

import (
	"sync"
	"time"
)

// linesMax is the maximum number of lines per second that unauthenticated clients can add to
// the log.
const linesMax = 20

// A throttle keeps unauthenticated clients from filling the log.
type throttle struct {
	mu      sync.Mutex
	second  time.Time // start of the current second
	lines   int       // in the current second
	dropped int       // since the latest line
}

// line reports whether the log may have a line now, and the number of lines that were dropped
// since the latest one.
func (t *throttle) line(now time.Time) (ok bool, dropped int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.second) >= time.Second {
		t.second, t.lines = now, 0
	}
	if t.lines == linesMax {
		t.dropped++
		return false, 0
	}
	t.lines++
	dropped, t.dropped = t.dropped, 0
	return true, dropped
}

// warnLimited logs a warning about a client, unless there were too many in this second.
func (s *Server) warnLimited(msg, addr, reason string) {
	ok, dropped := s.throttle.line(time.Now())
	if !ok {
		return
	}
	attrs := []any{"addr", addr, "reason", reason}
	if dropped > 0 {
		attrs = append(attrs, "more, not logged", dropped)
	}
	s.log.Warn(msg, attrs...)
}
