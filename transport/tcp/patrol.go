package tcp

import (
	"maps"
	"slices"
	"time"
)

const (
	// patrolTick is how often a Transport looks at sockets that something was
	// written to.
	patrolTick = 250 * time.Millisecond
	// A socket stalls if it has made no progress for stallMax, or if for stallMin it has
	// been repairing losses by timeouts: then retransmissions were lost as well, or it
	// gets on by one packet with each timeout. Where the round trip takes long, both
	// times are longer by stallTrips of them.
	stallMin   = 500 * time.Millisecond
	stallMax   = 750 * time.Millisecond
	stallTrips = 8
	// lossMemory is how long after a retransmission a conn keeps copies of
	// unacknowledged bytes.
	lossMemory = 10 * time.Second
	// moveRetry is how long after an attempt to move a pipe the next one follows.
	moveRetry = time.Second
)

// A socketProgress is the kernel's view of the bytes written to a socket.
type socketProgress struct {
	inFlight      bool   // packets are unacknowledged
	repairs       bool   // the retransmission timer has run out; until all sent before is acknowledged
	acked         uint64 // bytes
	retransmitted uint32 // packets
	trip          time.Duration
}

// A health is the patrol's memory of a sender. Nothing else uses it.
type health struct {
	flow  *subflow
	sent  uint64 // by the sender when the patrol looked last; written under its mutex
	last  socketProgress
	since time.Time // when the last acknowledgement was seen, or the socket not in use
	sound time.Time // when the socket was last seen without repairs
	tried time.Time // when the pipe was to be moved last
}

// patrol looks for lost packets and for stalled sockets, until the Transport is closed.
func (t *Transport) patrol() {
	tick := time.NewTicker(patrolTick)
	defer tick.Stop()
	for {
		select {
		case <-t.life.Done():
			return
		case now := <-tick.C:
			t.mu.Lock()
			conns := slices.Collect(maps.Keys(t.conns))
			t.mu.Unlock()
			for _, c := range conns {
				c.inspect(now)
			}
		}
	}
}

func (c *conn) inspect(now time.Time) {
	c.mu.Lock()
	senders := slices.Collect(maps.Values(c.outgoing))
	c.mu.Unlock()
	for _, s := range senders {
		lost, stalled := s.inspect(now)
		if lost {
			c.lossyUntil = now.Add(lossMemory)
			c.lossy.Store(true)
		}
		if stalled && now.Sub(s.health.tried) >= moveRetry {
			s.health.tried = now
			c.startMove(s)
		}
	}
	if c.lossy.Load() && now.After(c.lossyUntil) {
		c.lossy.Store(false)
	}
}

// inspect reports whether packets were lost since the last call, and whether the
// socket makes no progress. It asks the kernel only about sockets in use. That of a pipe that
// was closed is in use until the peer has read the end: the FIN can get lost as well.
func (s *sender) inspect(now time.Time) (lost, stalled bool) {
	h := &s.health
	s.mu.Lock()
	flow, busy := s.out, s.writing || s.flusher != nil || s.closed || s.sent != h.sent || h.last.inFlight
	h.sent = s.sent
	s.mu.Unlock()
	switch {
	case flow == nil:
		return false, false
	case flow.unsure.Load():
		if flow != h.flow {
			h.reset(flow)
			h.since = now
		}
		return true, flow.failed.Load() || now.Sub(h.since) >= moveRetry
	case !busy:
		h.since, h.sound = now, now
		return false, false
	}
	p, ok := flow.progress()
	if !ok {
		return false, false
	}
	if flow != h.flow {
		h.reset(flow)
	}
	return h.see(p, now)
}

// reset forgets what was seen of another socket.
func (h *health) reset(flow *subflow) {
	h.flow, h.last, h.since, h.sound = flow, socketProgress{}, time.Time{}, time.Time{}
}

// see takes note of the progress of the socket, and returns the results of inspect.
func (h *health) see(p socketProgress, now time.Time) (lost, stalled bool) {
	lost = p.retransmitted != h.last.retransmitted
	if !p.inFlight || p.acked != h.last.acked || h.since.IsZero() {
		h.since = now
	}
	if !p.inFlight || !p.repairs || h.sound.IsZero() {
		h.sound = now
	}
	h.last = p
	slack := stallTrips * p.trip
	return lost, now.Sub(h.since) >= stallMax+slack || now.Sub(h.sound) >= stallMin+slack
}
