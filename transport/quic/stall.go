package quic

import (
	"fmt"
	"maps"
	"slices"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

const (
	// stallInterval is the time between two samples of the connections. It exceeds the delay of acknowledgements.
	stallInterval = 100 * time.Millisecond
	// A connection may have stalled after stallMin, or stallRTTs smoothed round trips, without an answer.
	stallMin  = 750 * time.Millisecond
	stallRTTs = 4
)

// A stallClock measures for how long the peer has answered no packet. quic-go does not tell which packets are acknowledged, but a packet without
// an acknowledgement is sent again. So what is sent more than a stallInterval after the last packet of the peer is no acknowledgement, and
// must be answered. Only the goroutine of [Endpoint.monitor] uses the clock.
type stallClock struct {
	sent, received uint64    // packets
	heard          time.Time // the last sample with packets of the peer, or the first one
	asked          time.Time // the first sample with packets that the peer must answer; zero if there are none
}

// observe records a sample, and returns for how long the connection has stalled; 0 if it has not.
func (k *stallClock) observe(s quicgo.ConnectionStats, now time.Time) time.Duration {
	switch isFirst := k.heard.IsZero(); {
	case isFirst || s.PacketsReceived != k.received:
		k.heard, k.asked = now, time.Time{}
	case s.PacketsSent != k.sent && k.asked.IsZero() && now.Sub(k.heard) > stallInterval*3/2:
		k.asked = now
	}
	k.sent, k.received = s.PacketsSent, s.PacketsReceived
	if k.asked.IsZero() || now.Sub(k.asked) < max(stallMin, stallRTTs*s.SmoothedRTT) {
		return 0
	}
	return now.Sub(k.asked)
}

// monitor looks for stalled connections of a Transport until that is closed. It rests while there are none.
func (t *Transport) monitor() {
	tick := time.NewTicker(stallInterval)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-t.ctx.Done():
			return
		case <-tick.C:
		}
		t.end.mu.Lock()
		conns := slices.Collect(maps.Keys(t.end.conns))
		t.end.mu.Unlock()
		if len(conns) == 0 {
			tick.Stop()
			select {
			case <-t.ctx.Done():
				return
			case <-t.adopted:
			}
			tick.Reset(stallInterval)
			last = time.Now()
			continue
		}
		now := time.Now()
		hasPaused := now.Sub(last) >= stallMin // This process did not run.
		last = now
		for _, c := range conns {
			if c.owner != t || c.peer == "" || c.keys == nil && t.end.network == nil {
				continue
			}
			if hasPaused {
				c.stall = stallClock{}
			}
			if still := c.stall.observe(c.qc.ConnectionStats(), now); still > 0 && c.suspected.CompareAndSwap(false, true) {
				c.spawn(func() {
					c.examine(still)
					c.suspected.Store(false)
				})
			}
		}
	}
}

// examine asks the process of the peer over TCP, or over other relays. It ends the connection if the process answers, so that only the network can
// drop the packets, or if nothing answers at an address where the process has answered before. A stopped process does not answer, but its kernel
// accepts the TCP connection.
func (c *Conn) examine(still time.Duration) {
	before, why := c.qc.ConnectionStats().PacketsReceived, "its process answers over TCP"
	if n := c.end.network; n != nil {
		if why = "its process answers over another path"; n.Answers(c.qc.Context(), c.qc.RemoteAddr()) && c.isSilent(before) {
			c.stalled(still, why)
		}
		return
	}
	for asked := 0; asked < 2; asked++ {
		switch got, _ := c.ask(askOnce); {
		case got == answerKnown:
		case got == answerNowhere && c.hasAnswered.Load():
			why = "nothing answers at its address"
			asked++ // The kernel has repeated the question.
		default:
			return
		}
		if !c.isSilent(before) {
			return
		}
	}
	c.stalled(still, why)
}

// isSilent waits for a stallInterval, and reports whether the connection is open and has still received as many packets as before.
func (c *Conn) isSilent(before uint64) bool {
	return c.sleep(stallInterval) && c.qc.ConnectionStats().PacketsReceived == before
}

// stalled ends a connection.
func (c *Conn) stalled(still time.Duration, why string) {
	c.finish(codeStalled, fmt.Sprintf("no answer to any packet for %v, and %s", still.Truncate(time.Millisecond), why))
}
