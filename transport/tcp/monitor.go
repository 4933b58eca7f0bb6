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
	// A socket has stalled after stallMin, or stallRTTs smoothed round trips, without progress.
	stallMin  = 3 * monitorInterval
	stallRTTs = 4
)

// A sample is the state of a socket, as the kernel reports it (struct tcp_info).
type sample struct {
	ended     bool   // the kernel has given up the socket, or the peer has reset it
	queued    int    // bytes that the kernel of the peer has not acknowledged, sent or not; a FIN counts as one
	windowed  bool   // the receive window of the peer allows no more bytes
	acked     uint64 // bytes
	smoothRTT time.Duration
	young     bool          // smoothRTT is the shortest round trip so far
	probe     time.Duration // until the next probe or retransmission
}

// A sampler is a socket of a test that simulates its own state.
type sampler interface{ sample() sample }

// sampleOf returns the state of a socket, if the system reports it.
func sampleOf(sock socket) (sample, bool) {
	if s, ok := sock.(sampler); ok {
		return s.sample(), true
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return sample{}, false
	}
	return sampleSocket(raw)
}

// A stallClock measures the time for which a socket has bytes that the network does not deliver. A peer that does not read is no stall:
// its kernel closes the receive window. Only the goroutine of [Transport.monitor] uses it.
type stallClock struct {
	last  sample
	since time.Time // last sample with progress; zero before the first one
	// wait is added to the limit after the window was closed: the kernel learns by its next probe that the window is open.
	wait time.Duration
}

// reset starts the clock again at the next sample.
func (k *stallClock) reset() { *k = stallClock{} }

// observe records a sample, and returns for how long the socket has stalled; 0 if it has not.
func (k *stallClock) observe(p sample, now time.Time) time.Duration {
	switch {
	case p.windowed:
		k.since, k.wait = now, p.probe
	case k.since.IsZero() || p.queued == 0 || p.acked != k.last.acked:
		k.since, k.wait = now, 0
	}
	k.last = p
	if still := now.Sub(k.since); still >= max(stallMin, stallRTTs*p.smoothRTT)+k.wait {
		return still
	}
	return 0
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

// monitor samples the sockets of all conns until the Transport is closed. While no socket is in use it waits for note.
func (t *Transport) monitor() {
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	w := &t.monitoring
	var last time.Time
	for {
		select {
		case <-t.ctx.Done():
			return
		case <-w.wake:
			if w.parked.Swap(false) {
				tick.Reset(monitorInterval)
			}
			continue
		case <-tick.C:
		}
		now := time.Now()
		resumed := now.Sub(last) >= stallMin // The monitor was parked, or this process did not run.
		last = now
		if t.sample(now, resumed) {
			continue
		}
		// A socket that comes into use from now on wakes the monitor, so another sample is enough.
		if w.parked.Store(true); t.sample(now, resumed) {
			w.parked.Store(false)
			continue
		}
		tick.Stop()
	}
}

// sample samples all conns, and reports whether a socket is in use.
func (t *Transport) sample(now time.Time, resumed bool) (active bool) {
	t.mu.Lock()
	conns := slices.Collect(maps.Keys(t.conns))
	t.mu.Unlock()
	for _, c := range conns {
		active = c.sample(now, resumed) || active
	}
	return active
}

// sample ends the conn if one of its sockets has stalled or failed. It reports whether a socket is in use.
func (c *conn) sample(now time.Time, resumed bool) (active bool) {
	control, _ := c.sampleStall("the control socket", c.sock, &c.stall, now, resumed)
	c.rtt = control.smoothRTT
	active = c.writing.Load() || control.queued > 0
	c.mu.Lock()
	senders, receivers := slices.Collect(maps.Values(c.outgoing)), slices.Collect(maps.Values(c.incoming))
	opening := maps.Clone(c.opening)
	c.mu.Unlock()
	for sock, o := range opening {
		over := o.over.Load()
		if p, _ := c.sampleStall(pipeName(o.pipe), sock, &o.stall, now, resumed); over && (p.queued == 0 || p.ended) {
			c.mu.Lock()
			delete(c.opening, sock)
			c.mu.Unlock()
		}
		active = true
	}
	for _, r := range receivers {
		active = r.sampleRecord() || active
	}
	for _, s := range senders {
		active = s.sample(now, resumed) || active
	}
	return active
}

func pipeName(id uint32) string { return fmt.Sprintf("the socket of pipe %d", id) }

// sampleStall samples a socket. If it has stalled, the conn ends.
func (c *conn) sampleStall(what string, sock socket, k *stallClock, now time.Time, resumed bool) (p sample, ok bool) {
	if resumed {
		k.reset()
	}
	if p, ok = sampleOf(sock); !ok || p.ended {
		return p, ok
	}
	if p.young && c.rtt > 0 { // The handshake may have lost packets.
		p.smoothRTT = min(p.smoothRTT, c.rtt)
	}
	if still := k.observe(p, now); still > 0 && !c.t.cfg.Anonymous { // Nothing replaces the conn of a process that joins.
		c.end(gone(fmt.Errorf("%s has stalled: the kernel of the peer has acknowledged none of its %d bytes for %v", what, p.queued, still.Truncate(time.Millisecond))))
	}
	return p, true
}

// sample samples the socket of a pipe of this side. It asks the kernel only about a socket in use. A closed pipe uses its socket until
// the peer has read the end, since the FIN can be lost too.
func (s *sender) sample(now time.Time, resumed bool) (active bool) {
	s.mu.Lock()
	active = s.ps != nil && (s.writing || s.flushDone != nil || s.closed || s.sent != s.sampled || s.stall.last.queued > 0)
	s.sampled = s.sent
	ps := s.ps
	s.mu.Unlock()
	if !active {
		s.stall.reset()
		return false
	}
	p, ok := s.conn.sampleStall(pipeName(s.id), ps.socket, &s.stall, now, resumed)
	if ok && p.ended && p.queued > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.breakLocked(fmt.Errorf("it has ended with %d bytes that the peer has not acknowledged", p.queued))
	}
	return ok
}

// endBroken ends the conn after the failure of the socket of a pipe. It may be called with the lock of a pipe held.
func (c *conn) endBroken(pipe uint32, err error) {
	c.failSoon(fmt.Errorf("the socket of pipe %d has failed: %v", pipe, err)) // A wrapped ECONNRESET would count as the end of the process.
	c.send(message{kind: msgBroken, pipe: pipe})
}
