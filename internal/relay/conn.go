package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/session"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/transport"
)

// A conn implements [transport.Conn] by a session.
type conn struct {
	endpoint *Endpoint
	key      connKey
	incoming bool
	from     membership.NodeID              // the neighbor of the first frame, if incoming
	dropped  atomic.Pointer[forward.Reason] // of the last frame that was lost at this node
	done     chan struct{}                  // closed after err is set
	flushed  chan struct{}                  // closed when the peer knows the end or is gone

	// mu guards the fields below.
	mu        sync.Mutex
	session   *session.Session
	event     wake.Signal // when the session calls Notify
	announced bool        // the handshake is over
	err       error
	unflushed bool
	altered   uint64            // frames that the session has dropped as altered
	alteredBy membership.NodeID // the neighbor that has sent the last of them
	timer     *time.Timer
	timerAt   time.Time // zero if the timer is not running
}

func newConn(e *Endpoint, peer membership.NodeID, id uint64) *conn {
	return &conn{
		endpoint: e, key: connKey{peer, id}, done: make(chan struct{}), flushed: make(chan struct{}),
		event: wake.NewSignal(), unflushed: true,
	}
}

// config returns the configuration of the session.
func (c *conn) config(conf *tls.Config) session.Config {
	return session.Config{
		Self: c.endpoint.cfg.Self, Peer: c.key.peer, ID: c.key.session, TLS: conf, Identify: c.endpoint.cfg.Peer,
		Notify: c.notifyLocked,
	}
}

// notifyLocked wakes Dial, OpenPipe and AcceptPipe.
func (c *conn) notifyLocked() {
	c.event.Send()
}

// do carries out an event of the session and its effects.
func (c *conn) do(event func(now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	event(now)
	c.flushLocked(now)
}

// flushLocked carries out the effects of an event: it sends frames, sets the timer, and
// announces the beginning and the end of the session.
func (c *conn) flushLocked(now time.Time) {
	s := c.session
	if c.incoming && !c.announced && (s.Established() || s.Err() != nil) {
		c.announced = true
		c.endpoint.handshakeOver(c.from)
		if s.Err() == nil {
			select {
			case c.endpoint.accepted <- c:
			default:
				s.Close(now)
			}
		}
	}
	if frames := s.Take(); len(frames) > 0 {
		c.endpoint.send(now, frames)
	}
	if c.err == nil && s.Err() != nil {
		c.err = c.explainLocked(s.Err())
		close(c.done)
	}
	if c.unflushed && c.err != nil && !s.Closing() {
		c.unflushed = false
		close(c.flushed)
	}
	if s.Finished(now) {
		c.endpoint.forget(c)
	}
	c.setTimerLocked(now)
}

// explainLocked adds the path to the error of a session with a silent peer: a relay may have failed, or be hostile.
func (c *conn) explainLocked(err error) error {
	if !errors.Is(err, session.ErrSilent) {
		return err
	}
	e := c.endpoint
	path := fmt.Sprintf("frames from node %v to it go%s", e.cfg.Self, e.via(c.Peer()))
	if c.altered > 0 {
		path += fmt.Sprintf("; %d frames from it were altered or forged on their path, the last came from the relay %v", c.altered, c.alteredBy)
	}
	return fmt.Errorf("%w: %s", err, path)
}

// via names the first relays on the paths to a node.
func (e *Endpoint) via(addr string) string {
	id, err := membership.ParseNodeID(addr)
	if err != nil || id == e.cfg.Self {
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprintf(" over the relays %v", e.cfg.Routes.NextHops(id, 0, nil))
}

// setTimerLocked lets the timer run until the deadline of the session. A timer that runs may be too early,
// since deadlines move with every acknowledgement.
func (c *conn) setTimerLocked(now time.Time) {
	at := c.session.Deadline()
	switch {
	case at.IsZero():
		if c.timer != nil {
			c.timer.Stop()
		}
		c.timerAt = at
	case !c.timerAt.IsZero() && !at.Before(c.timerAt):
	case c.timer == nil:
		c.timerAt = at
		c.timer = time.AfterFunc(at.Sub(now), c.tick)
	default:
		c.timerAt = at
		c.timer.Reset(at.Sub(now))
	}
}

func (c *conn) tick() {
	c.do(func(now time.Time) {
		c.timerAt = time.Time{}
		c.session.Tick(now)
	})
}

// Peer implements [transport.Conn].
func (c *conn) Peer() string { return c.key.peer.String() }

// RemoteAddr implements [transport.Conn].
func (c *conn) RemoteAddr() string { return c.key.peer.String() }

// Done implements [transport.Conn].
func (c *conn) Done() <-chan struct{} { return c.done }

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities { return transport.Capabilities{TLSConn: c} }

// ConnectionState implements [transport.TLSConn].
func (c *conn) ConnectionState() tls.ConnectionState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.ConnectionState()
}

// RoundTrip returns the smoothed time between a frame and its acknowledgement, or 0 before the first one. It has the time
// that frames wait in relays.
func (c *conn) RoundTrip() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session.RoundTrip()
}

// Rejected returns the numbers of frames of the peer that were dropped because they were altered or forged on their path, and
// because they had arrived before. Frames that the peer has sent again after a change of the routes count as repeated as well.
func (c *conn) Rejected() (altered, repeated uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session.Stats()
	return s.Altered, s.Repeated
}

// Err implements [transport.Conn].
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements [transport.Conn].
func (c *conn) Close() error {
	c.do(func(now time.Time) { c.session.Close(now) })
	return nil
}

// OpenPipe implements [transport.Conn]. It blocks while session.PipesMax pipes are open.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	var s *sender
	err := c.await(ctx, func(now time.Time) bool {
		p := c.session.Open(now)
		if p != nil {
			s = newSenderLocked(c, p)
		}
		return p != nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// AcceptPipe implements [transport.Conn].
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	var r *receiver
	err := c.await(ctx, func(now time.Time) bool {
		p := c.session.AcceptPipe(now)
		if p != nil {
			r = newReceiverLocked(c, p)
		}
		return p != nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// await calls try after each event until it succeeds.
func (c *conn) await(ctx context.Context, try func(now time.Time) bool) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		ok, failure := false, error(nil)
		var event <-chan struct{}
		c.do(func(now time.Time) {
			if failure = c.err; failure == nil {
				ok = try(now)
			}
			event = c.event.Next()
		})
		if ok || failure != nil {
			return failure
		}
		select {
		case <-event:
		case <-c.done:
		case <-ctx.Done():
		}
	}
}
