package tcp

import (
	"fmt"
	"sync/atomic"
	"time"
)

// A controlMonitor ends a conn if the host of the peer does not acknowledge bytes on the control socket. Without
// bytes in flight, keepalive probes of the kernel do so.
//
// The kernel could do both (TCP_USER_TIMEOUT). But Linux (seen in 6.18) can keep the time of the first probe
// (icsk_probes_tstamp) of a segment after an outage of the network interface. With that option it then ends the socket
// within 200 ms of the next outage.
type controlMonitor struct {
	writing atomic.Bool // bytes are being written
	used    atomic.Bool // bytes were written since the last sample without bytes in flight; set before writing ends

	// Used only by Transport.monitor:
	waits time.Time // first sample of the last ones in a row with bytes in flight; zero without any
}

// hostTimeout is the time after which a host that does not acknowledge counts as gone. It reports false if Config.IdleTimeout disables it.
func (t *Transport) hostTimeout() (limit time.Duration, ok bool) {
	return max(t.cfg.IdleTimeout, 15*time.Second), t.cfg.IdleTimeout >= 0
}

// sampleControl samples the control socket, and reports whether it is in use.
func (c *conn) sampleControl(now time.Time) (active bool) {
	m := &c.control
	limit, ok := c.t.hostTimeout()
	writing := m.writing.Load()
	if !ok || !m.used.Swap(false) && !writing {
		return false
	}
	p, ok := sampleOf(c.sock, nil)
	if !ok || p.ended || !p.inFlight && !p.unsent {
		m.waits = time.Time{}
		return writing
	}
	m.used.Store(true)
	switch {
	case m.waits.IsZero():
		m.waits = now
	case now.Sub(m.waits) > limit && p.silent > limit:
		c.end(gone(fmt.Errorf("its host has acknowledged nothing on the control socket for %v", p.silent.Truncate(time.Millisecond))))
	}
	return true
}
