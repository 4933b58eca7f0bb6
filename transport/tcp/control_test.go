package tcp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A fixedSample is a control socket with a state that a test sets.
type fixedSample struct {
	readOnly
	state sample
}

func (f *fixedSample) unacked() int   { return 0 }
func (f *fixedSample) sample() sample { return f.state }

// TestSilentHost checks that a conn ends if and only if bytes on its control socket are in flight, or unsent, for the whole host
// timeout, and the host of the peer has acknowledged nothing during that time.
func TestSilentHost(t *testing.T) {
	const idle = 20 * time.Second
	long, short := idle+time.Second, time.Second
	for name, test := range map[string]struct {
		states []sample      // one sample each, after which later times pass
		pause  time.Duration // between samples
		ends   bool
	}{
		"in flight, no acknowledgement":      {[]sample{{inFlight: true, silent: short}, {inFlight: true, silent: long}}, long, true},
		"unsent, no acknowledgement":         {[]sample{{unsent: true, silent: short}, {unsent: true, silent: long}}, long, true},
		"in flight since a moment":           {[]sample{{inFlight: true, silent: long}, {inFlight: true, silent: long}}, short, false},
		"acknowledged probes, closed window": {[]sample{{unsent: true, silent: short}, {unsent: true, silent: short}}, long, false},
		"nothing in flight":                  {[]sample{{silent: long}, {silent: long}}, long, false},
		"in flight again":                    {[]sample{{inFlight: true}, {}, {inFlight: true, silent: long}}, long, false},
	} {
		t.Run(name, func(t *testing.T) {
			sock := new(fixedSample)
			c := &conn{t: newIdleTransport(), sock: sock, queued: make(chan struct{}, 1)}
			c.t.cfg.IdleTimeout = idle
			c.ctx, c.cancel = context.WithCancelCause(t.Context())
			now := time.Now()
			for _, state := range test.states {
				c.control.used.Store(true)
				sock.state = state
				pending := state.inFlight || state.unsent
				if active := c.sampleControl(now); active != pending {
					t.Errorf("a sample %+v: in use: %t, want %t", state, active, pending)
				}
				now = now.Add(test.pause)
			}
			if err := c.Err(); errors.Is(err, transport.ErrPeerGone) != test.ends {
				t.Errorf("the conn has ended: %v, want %t", err, test.ends)
			} else if test.ends && !strings.Contains(err.Error(), "acknowledged nothing on the control socket for 21s") {
				t.Errorf("the conn has ended: %v, want the silence of the host as the reason", err)
			}
		})
	}
}

// TestControlSocketIsSampled checks that the monitor samples the control socket after a message was written.
func TestControlSocketIsSampled(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	_, from := connect(t, nodes[0], nodes[1])
	eventually(t, "the end of samples", from.t.monitoring.parked.Load)
	func() {
		from.t.mu.Lock() // stops the monitor
		defer from.t.mu.Unlock()
		from.t.monitoring.note()
		eventually(t, "the end of a sample that has begun", func() bool { return !from.t.monitoring.parked.Load() })
		from.send(message{kind: msgMigrate, pipe: 1}) // the peer ignores it, as it has no such pipe
		eventually(t, "the message to be written", func() bool { return from.control.used.Load() && !from.control.writing.Load() })
	}()
	eventually(t, "a sample without bytes in flight", func() bool {
		return !from.control.used.Load() && from.t.monitoring.parked.Load()
	})
	if err := from.Err(); err != nil {
		t.Errorf("the conn has ended: %v", err)
	}
}
