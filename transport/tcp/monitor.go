package tcp

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// monitorInterval is the time between two samples of the sockets in use.
	monitorInterval = 250 * time.Millisecond
	// A socket is stalled without progress for stallMax, or after timeout recovery
	// for stallMin: its retransmissions were lost as well, or it advances by one
	// segment per timeout. Both limits grow by stallRTTs round trips.
	stallMin  = 2 * monitorInterval
	stallMax  = 3 * monitorInterval
	stallRTTs = 8
	// lossMemory is how long a conn counts as lossy after a loss.
	lossMemory = 10 * time.Second
	// migrateRetry is the minimum time between two attempts to migrate a pipe.
	migrateRetry = 4 * monitorInterval
)

// A sample is the state of a socket, as the kernel reports it (struct tcp_info).
type sample struct {
	ended    bool   // the kernel has given up the socket, or the peer has reset it
	inFlight bool   // some segments are unacknowledged
	unsent   bool   // some bytes wait to be sent
	timedOut bool   // in timeout recovery: TCP_CA_Loss
	acked    uint64 // bytes
	minRTT   time.Duration
	rtt      time.Duration // smoothed
	silent   time.Duration // since the last acknowledgement
	segments segmentCounts
}

// A pathMonitor detects losses and stalls of the current socket of a sender. Only
// the goroutine of [Transport.monitor] uses it.
type pathMonitor struct {
	flow     *subflow
	sent     uint64 // sender.sent at the last sample; guarded by sender.mu
	last     sample
	advanced time.Time // last sample with progress, or with the socket idle
	sound    time.Time // last sample without timeout recovery
	migrated time.Time // last attempt to migrate the pipe
	busy     bool      // the socket was in use at the last sample
	ended    breakage  // of a socket that was in use
	loss     lossDetector
}

// A monitorWake parks the monitor of a Transport while no socket is in use.
type monitorWake struct {
	parked atomic.Bool
	wake   chan struct{}
}

// note wakes the monitor. It is called after a socket has come into use.
func (w *monitorWake) note() {
	if w.parked.Load() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// monitor samples all senders until the Transport is closed. While no socket is in use it waits for note.
func (t *Transport) monitor() {
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	w := &t.monitoring
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-w.wake:
			if w.parked.Swap(false) {
				tick.Reset(monitorInterval)
			}
		case now := <-tick.C:
			if t.sample(now) {
				continue
			}
			// A socket that comes into use from now on wakes the monitor, so another sample is enough.
			if w.parked.Store(true); t.sample(now) {
				w.parked.Store(false)
				continue
			}
			tick.Stop()
		}
	}
}

// sample samples all conns, and reports whether a socket is in use or has lost packets recently.
func (t *Transport) sample(now time.Time) (active bool) {
	t.mu.Lock()
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	for _, c := range conns {
		active = c.sample(now) || active
	}
	return active
}

// sample updates lossy and migrates the pipes of stalled sockets. It ends the conn if a socket in use has ended and
// the control socket does not explain that: the bytes in it are lost, and the peer may wait for them for ever. It
// reports whether a socket is in use, or the path is lossy.
func (c *conn) sample(now time.Time) (active bool) {
	active = c.sampleControl(now)
	c.mu.Lock()
	senders, receivers := slices.Collect(maps.Values(c.outgoing)), slices.Collect(maps.Values(c.incoming))
	c.mu.Unlock()
	for _, r := range receivers {
		active = r.sampleRecord() || active
	}
	for _, s := range senders {
		lossy, stalled := s.sample(now)
		if lossy {
			c.lossyUntil = now.Add(lossMemory)
			c.lossy.Store(true)
		}
		if stalled && now.Sub(s.path.migrated) >= migrateRetry {
			s.path.migrated = now
			c.migrate(s)
		}
		active = active || stalled || s.path.busy
		if s.path.ended.isUnexplained(c, s.migrates) && c.sender(s.id) == s {
			c.end(gone(fmt.Errorf("the socket of pipe %d has ended, and the bytes in it are lost", s.id)))
		}
	}
	if c.lossy.Load() && now.After(c.lossyUntil) && !c.t.staysLossy {
		c.lossy.Store(false)
	}
	return active || c.lossy.Load()
}

// sample reports whether the path is lossy and whether the socket is stalled. It asks
// the kernel only about sockets in use. A closed pipe uses its socket until the peer
// has read the end, since the FIN can be lost too.
func (s *sender) sample(now time.Time) (lossy, stalled bool) {
	m := &s.path
	s.mu.Lock()
	flow := s.flow
	m.busy = s.writing || s.flushDone != nil || s.closed || s.sent != m.sent || m.last.inFlight || m.last.unsent || m.loss.pending() || m.ended.hasBegun()
	m.sent = s.sent
	failed := s.flushFailed
	s.mu.Unlock()
	if flow == nil {
		return false, false
	}
	if flow != m.flow {
		m.reset(flow)
	}
	switch {
	case flow.unconfirmed.Load():
		if m.advanced.IsZero() {
			m.advanced = now
		}
		return true, flow.failed.Load() || now.Sub(m.advanced) >= migrateRetry
	case !m.busy:
		m.advanced, m.sound = now, now
		return false, false
	}
	p, ok := flow.sample()
	if failed || p.ended && flow.holdsBytes() {
		m.ended.begin(s.conn, s.id, 0)
	} else {
		m.ended = breakage{}
	}
	if !ok {
		return false, false
	}
	return m.observe(p, now)
}

// reset begins to monitor another subflow. It does not touch sent, which the lock of the sender guards.
func (m *pathMonitor) reset(flow *subflow) {
	m.flow, m.last, m.loss = flow, sample{}, lossDetector{}
	m.advanced, m.sound, m.ended = time.Time{}, time.Time{}, breakage{}
}

// observe records a sample and returns the results of sender.sample.
func (m *pathMonitor) observe(p sample, now time.Time) (lossy, stalled bool) {
	if !p.inFlight || p.acked != m.last.acked || m.advanced.IsZero() {
		m.advanced = now
	}
	if !p.inFlight || !p.timedOut || m.sound.IsZero() {
		m.sound = now
	}
	m.last = p
	slack := stallRTTs * p.minRTT
	return m.loss.observe(p, now) || p.timedOut,
		now.Sub(m.advanced) >= stallMax+slack || now.Sub(m.sound) >= stallMin+slack
}
