// Package session is the connection between two nodes through relays: a
// [Session] is one side of it. It has the properties of a conn between neighbors: independent one-way
// pipes, which are reliable and in order, and a peer with a proved identity.
//
// The package is pure: [Session.Receive], [Session.Tick] and the calls of the application are
// events, with the time as a parameter, and [Session.Take] returns the frames to be sent.
//
// # Security
//
// Both sides make a mutual TLS 1.3 handshake, in frames, and check that the peer is the node that the
// frames name. The keys of AES-128-GCM come from the TLS session (RFC 8446, section 7.5), one for
// each direction and for data and acknowledgements. The sequence number is the nonce, and a frame is
// authenticated with source, destination, session, kind and sequence number. A frame that was
// altered, forged or repeated is dropped with a [Verdict], and the session continues, since the
// frame is sent again. A relay can delay or drop frames, and it can make a handshake fail.
//
// # Reliability
//
// Frames are acknowledged end to end and sent again when later frames arrive before them, after a
// timeout, or when the routes have changed. A retransmission is the same sealed frame with another
// Attempt, so that it takes another path. The peer drops repetitions and restores the order.
//
// # Flow control
//
// At most windowBytes are in flight. Each pipe has end-to-end credit of PipeWindow bytes, so a pipe
// that is not read does not delay the others. A peer buffers at most windowBytes and PipesMax × PipeWindow, in at most twice as much
// memory.
package session

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/transport"
)

const (
	// ackDelay is the maximum delay of an acknowledgement. Every second frame is acknowledged at once.
	ackDelay = 5 * time.Millisecond
	// closeLimit bounds the time that a closed session takes to send its end again: until its frames take another path.
	closeLimit = forward.DefaultStall
	// repeatLimit is the time that a session acknowledges repetitions after it has ended on both sides.
	repeatLimit = 2 * timeoutFirst
	// DefaultSilence is the default of Config.Silence: the stalls of three paths.
	DefaultSilence = 3 * forward.DefaultStall
)

// A Verdict says how a frame was handled.
type Verdict uint8

// The verdicts.
const (
	Accepted   Verdict = iota
	Altered            // the frame is not authentic: it was altered or forged
	Repeated           // the frame had arrived before
	Unexpected         // the state of the session does not permit the frame
)

func (v Verdict) String() string {
	names := [...]string{"accepted", "altered or forged", "repeated", "unexpected"}
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Config configures one side of a session.
type Config struct {
	Self, Peer membership.NodeID
	// ID is chosen by the client. No two sessions between two nodes may have the same.
	ID uint64
	// TLS is the configuration of the client or server. It verifies the peer.
	TLS *tls.Config
	// Identify returns the identity of the peer, which must be the text of Peer.
	Identify func(tls.ConnectionState) (string, error)
	// Attempt is the Attempt of the first frames.
	Attempt uint8
	// Silence is the time without any acknowledgement after which the peer counts as gone:
	// DefaultSilence by default.
	Silence time.Duration
	// Notify, if not nil, is called when the session is established, when a pipe can be accepted or
	// opened, and when the session ends. It must not call the Session.
	Notify func()
}

type state uint8

const (
	stateHandshake state = iota
	stateOpen
	stateClosing  // closed by this side; its end is being sent
	stateEnded    // acknowledges repetitions until finishAt
	stateFinished // does nothing more
)

// Stats count the frames of a session.
type Stats struct {
	Sent, Resent, Received      uint64
	Altered, Repeated, Timeouts uint64
}

// A Session is one side of a connection through relays. Its methods must not be called
// concurrently.
type Session struct {
	cfg    Config
	client bool
	state  state
	err    error // set when the session ends

	handshake handshake
	tls       tls.ConnectionState
	keys      keys

	out    outbound
	in     inbound
	acked  uint64 // sequence number of the next Ack frame
	heard  uint64 // that of the next Ack frame of the peer
	unread int    // frames since the last Ack frame

	timer    timer
	attempt  uint8
	losses   int   // since the last change of attempt
	repeated uint8 // Attempt of the last Data or Handshake frame that had arrived before
	started  time.Time
	progress time.Time // of the last acknowledgement, or of the first frame in flight
	resendAt time.Time // zero if nothing is in flight
	probing  bool      // resendAt follows a change of the routes
	ackAt    time.Time // zero if no acknowledgement is due
	probeAt  time.Time // when a frame without items is sent, unless one with items is sent or received before; zero after it
	finishAt time.Time // of a session that has ended

	mux   mux
	sent  []forward.Frame
	stats Stats
}

// Dial starts a session as the client.
func Dial(now time.Time, cfg Config) (*Session, error) { return start(now, cfg, true) }

// Accept starts a session as the server, for the first Handshake frame of a client.
func Accept(now time.Time, cfg Config) (*Session, error) { return start(now, cfg, false) }

func start(now time.Time, cfg Config, client bool) (*Session, error) {
	if cfg.Silence == 0 {
		cfg.Silence = DefaultSilence
	}
	s := &Session{cfg: cfg, client: client, attempt: cfg.Attempt, started: now, progress: now}
	s.mux.init()
	return s, s.begin(now)
}

// Established reports whether pipes can be opened.
func (s *Session) Established() bool { return s.state == stateOpen }

// Err returns nil until the session ends, and then the reason. It wraps an error of package transport.
func (s *Session) Err() error { return s.err }

// Finished reports that the session has ended and needs no further event.
func (s *Session) Finished(now time.Time) bool {
	return s.state == stateFinished || s.state == stateEnded && !now.Before(s.finishAt)
}

// Closing reports that this side has closed the session and the peer has not acknowledged it.
func (s *Session) Closing() bool { return s.state == stateClosing }

// ConnectionState returns the state of the TLS session.
func (s *Session) ConnectionState() tls.ConnectionState { return s.tls }

// Stats returns the counters.
func (s *Session) Stats() Stats { return s.stats }

// RoundTrip returns the smoothed time between a frame and its acknowledgement, or 0 before the first one.
func (s *Session) RoundTrip() time.Duration { return s.timer.smoothed }

// Take returns the frames to be sent, in order.
func (s *Session) Take() []forward.Frame {
	frames := s.sent
	s.sent = nil
	return frames
}

func (s *Session) notify() {
	if s.cfg.Notify != nil {
		s.cfg.Notify()
	}
}

// frame returns a frame of this session without its payload.
func (s *Session) frame(kind forward.Kind, seq uint64) forward.Frame {
	return forward.Frame{Attempt: s.attempt, Kind: kind, Source: s.cfg.Self, Destination: s.cfg.Peer, Session: s.cfg.ID, Seq: seq}
}

func (s *Session) emit(f forward.Frame) { s.sent = append(s.sent, f) }

// inFlight returns the frames that are sent again.
func (s *Session) inFlight() *outbound {
	if s.state == stateHandshake {
		return &s.handshake.out
	}
	return &s.out
}

// restart starts the timeout of retransmissions, or stops it if nothing is in flight.
func (s *Session) restart(now time.Time) {
	s.resendAt, s.probing = time.Time{}, false
	if len(s.inFlight().frames) > 0 {
		s.resendAt = now.Add(s.timer.timeout())
	}
}

// Receive handles a frame of the peer. The session keeps the payload and changes it.
func (s *Session) Receive(now time.Time, f forward.Frame) (v Verdict) {
	switch f.Kind {
	case forward.Handshake:
		v = s.receiveHandshake(now, f)
	case forward.HandshakeAck:
		v = s.receiveHandshakeAck(now, f)
	case forward.Abort:
		v = s.receiveAbort(now, f)
	case forward.Data:
		v = s.receiveData(now, f)
	case forward.Ack:
		v = s.receiveAck(now, f)
	default:
		v = Unexpected
	}
	switch v {
	case Accepted:
		s.stats.Received++
	case Altered:
		s.stats.Altered++
	case Repeated:
		s.stats.Repeated++
	}
	return v
}

// confirmed handles the first sealed frame of the server.
func (s *Session) confirmed(now time.Time) {
	if s.state == stateHandshake {
		s.established(now)
		s.pump(now)
	}
}

// receiveData handles a Data frame.
func (s *Session) receiveData(now time.Time, f forward.Frame) Verdict {
	if !s.handshake.done {
		return Unexpected
	}
	if v := s.in.wants(&f); v != Accepted {
		if v == Repeated {
			s.acknowledgeAgain(now, &f)
		}
		return v
	}
	plain, ok := s.keys.openData.open(&f)
	if !ok {
		return Altered
	}
	s.confirmed(now)
	order := f.Seq == s.in.next && len(s.in.held) == 0
	s.in.add(f.Seq, plain)
	for {
		p, ok := s.in.take()
		if !ok {
			break
		}
		if len(p) > 0 {
			s.probeAt = now.Add(s.cfg.Silence)
		}
		s.handle(now, p)
	}
	s.unread++
	if s.unread >= 2 || !order || s.state == stateEnded {
		s.acknowledge(now)
	} else if s.ackAt.IsZero() {
		s.ackAt = now.Add(ackDelay)
	}
	s.pump(now)
	return Accepted
}

// acknowledge sends an Ack frame.
func (s *Session) acknowledge(now time.Time) {
	f := s.frame(forward.Ack, s.acked)
	s.acked++
	a := s.in.acks()
	s.keys.sealAck.seal(&f, a.append(make([]byte, 0, acksSize+tagSize)))
	s.emit(f)
	s.unread, s.ackAt = 0, time.Time{}
}

// acknowledgeAgain acknowledges a frame that had arrived before: the acknowledgements may be lost. A side with frames in flight learns from
// their acknowledgements whether its path works. One without takes another path when the peer does.
func (s *Session) acknowledgeAgain(now time.Time, f *forward.Frame) {
	if f.Attempt != s.repeated {
		s.repeated = f.Attempt
		if len(s.inFlight().frames) == 0 {
			s.attempt++
		}
	}
	s.acknowledge(now)
}

// receiveAck handles an Ack frame. Older ones than the last contain nothing new.
func (s *Session) receiveAck(now time.Time, f forward.Frame) Verdict {
	if !s.handshake.done {
		return Unexpected
	}
	if f.Seq < s.heard {
		return Repeated
	}
	plain, ok := s.keys.openAck.open(&f)
	if !ok {
		return Altered
	}
	a, ok := parseAcks(plain)
	if !ok {
		return Unexpected
	}
	s.heard = f.Seq + 1
	s.confirmed(now)
	s.acknowledged(now, &s.out, a)
	s.pump(now)
	if s.state == stateClosing && s.mux.closeSent && len(s.out.frames) == 0 {
		s.state, s.finishAt = stateEnded, now.Add(repeatLimit)
		s.resendAt = time.Time{}
	}
	return Accepted
}

// acknowledged handles the acknowledgement of frames in flight and sends lost ones again.
func (s *Session) acknowledged(now time.Time, o *outbound, a acks) {
	news, rtt := o.acknowledge(now, a)
	if !news {
		return
	}
	if rtt > 0 {
		s.timer.sample(rtt)
	}
	s.timer.backoff = 0
	s.progress = now
	s.restart(now)
	for _, f := range o.lost() {
		// A path that loses frames again and again is left.
		if s.losses++; s.losses%8 == 0 {
			s.attempt++
		}
		s.emit(o.resend(now, f, s.attempt+f.again))
		s.stats.Resent++
	}
}

// RoutesChanged sends frames again soon, unless they are acknowledged: they may be lost in a relay that
// has gone.
func (s *Session) RoutesChanged(now time.Time) {
	if s.resendAt.IsZero() {
		return
	}
	if at := now.Add(s.timer.soon()); at.Before(s.resendAt) {
		s.resendAt, s.probing = at, true
	}
}

// Deadline returns the time of the next Tick, or zero if there is none.
func (s *Session) Deadline() (at time.Time) {
	earlier := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	earlier(s.resendAt)
	earlier(s.ackAt)
	earlier(s.finishAt)
	if s.state == stateHandshake {
		earlier(s.started.Add(deadline.Handshake))
	}
	if s.state == stateOpen {
		earlier(s.probeAt)
	}
	if !s.resendAt.IsZero() {
		earlier(s.progress.Add(s.cfg.Silence))
	}
	return at
}

// ErrSilent says that a session has ended after Config.Silence.
var ErrSilent = errors.New("has acknowledged nothing")

// Tick does the work that is due.
func (s *Session) Tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case due(s.finishAt):
		s.finish()
		return
	case s.state == stateHandshake && due(s.started.Add(deadline.Handshake)):
		s.refuse(now, fmt.Errorf("relay: handshake with %v: %w: not finished after %v", s.cfg.Peer, transport.ErrPeerGone, deadline.Handshake))
		return
	case !s.resendAt.IsZero() && due(s.progress.Add(s.cfg.Silence)):
		s.end(now, fmt.Errorf("relay: %w: node %v %w for %v", transport.ErrPeerGone, s.cfg.Peer, ErrSilent, s.cfg.Silence))
		return
	}
	if due(s.ackAt) {
		s.acknowledge(now)
	}
	if due(s.resendAt) {
		s.timeOut(now)
	}
	if s.state == stateOpen && due(s.probeAt) {
		s.probe(now)
	}
}

// timeOut sends the oldest frames again, over another path unless the routes have changed.
func (s *Session) timeOut(now time.Time) {
	if !s.probing {
		s.stats.Timeouts++
		s.timer.backoff++
		s.attempt++
	}
	o := s.inFlight()
	for _, f := range o.oldest(timeoutFrames) {
		s.emit(o.resend(now, f, s.attempt))
		s.stats.Resent++
	}
	s.restart(now)
}

// probe makes sure that the peer has not ended a session that is idle: its end may be lost, if no path worked for closeLimit. A session is
// probed once after its last item, or after its handshake.
func (s *Session) probe(now time.Time) {
	s.probeAt = time.Time{}
	if len(s.out.frames) == 0 {
		s.sendData(now, make([]byte, 0, tagSize))
	}
}

// Close ends the session on both sides and discards the bytes in its pipes. The first end decides.
func (s *Session) Close(now time.Time) {
	switch s.state {
	case stateHandshake:
		if s.handshake.done { // The server may have its end.
			s.established(now)
			s.close(now)
			return
		}
		s.refuse(now, fmt.Errorf("relay: session with %v: %w", s.cfg.Peer, transport.ErrClosed))
	case stateOpen:
		s.close(now)
	}
}

func (s *Session) close(now time.Time) {
	s.state, s.finishAt = stateClosing, now.Add(closeLimit)
	s.err = fmt.Errorf("relay: session with %v: %w", s.cfg.Peer, transport.ErrClosed)
	s.mux.discard()
	s.pump(now)
	s.notify()
}

// Fail ends the session without telling the peer, which is gone. err wraps an error of package transport.
func (s *Session) Fail(now time.Time, err error) {
	if s.state == stateHandshake || s.state == stateOpen {
		s.end(now, err)
	}
	s.finish()
}

func (s *Session) finish() {
	s.state = stateFinished
	s.resendAt, s.ackAt, s.finishAt = time.Time{}, time.Time{}, time.Time{}
}

// end ends the session with an error. It acknowledges repetitions for a while if the peer has closed it.
func (s *Session) end(now time.Time, err error) {
	s.handshake.conn.Close()
	if s.err == nil {
		s.err = err
	}
	s.state, s.finishAt = stateEnded, now
	if errors.Is(err, transport.ErrPeerClosed) && s.handshake.done {
		s.finishAt = now.Add(repeatLimit)
	}
	s.resendAt, s.ackAt = time.Time{}, time.Time{}
	s.out, s.handshake.out = outbound{}, outbound{}
	s.mux.discard()
	s.notify()
}
