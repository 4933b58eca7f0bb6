package lane

import (
	"errors"
	"fmt"
)

const (
	// generationStep bounds the generations between two proposals: a hostile peer needs 2³² connections to use up the generations.
	generationStep = 1 << 32
	// refusalsMax bounds the refusals on one connection.
	refusalsMax = 16
)

// A Conn is the part of a connection that its session knows.
type Conn struct {
	Dialed bool // this side has made the connection

	refusals   int
	challenged ID // the peer of the link when this side refused the other process on this connection
}

// An Action lists the actions of the caller after an event, in the order of the fields.
type Action struct {
	// End, if not nil, is the reason of the end of the link. The connection of the event belongs to the caller, which may give it with its
	// opening to the next link.
	End error
	// Close is a connection to close, or nil.
	Close *Conn
	// Stop says that the readers of the lane shall stop and remote keys be revoked; then the caller calls Stopped. Frames
	// that are being handled are handled to their end and counted.
	Stop bool
	// Send is the connection on which to send Opening, or nil. If its kind is Open, the caller adds its numbers.
	Send    *Conn
	Opening Opening
	// Opened is the connection that now carries the lane, or nil. The peer has stated Theirs: the caller goes on from there,
	// reads frames, and sends.
	Opened *Conn
	Theirs Opening
}

// ballot orders proposals.
type ballot struct {
	generation uint64
	ours       bool // this side has proposed
}

// A phase is the state of the current connection of a session.
type phase uint8

const (
	none     phase = iota // there is no connection
	stopping              // readers of the earlier one stop
	stated                // this side has stated its numbers, and waits for those of the peer
	opened                // the lane uses the connection
)

// A Session decides which connection carries a lane.
type Session struct {
	names  *Names
	larger bool // the NodeID of this side is the larger one: its proposals win

	seen     uint64 // the largest generation
	promised ballot // of the latest connection: smaller ones are not used any more
	phase    phase
	conn     *Conn   // the current connection; nil without one
	theirs   Opening // while stopping: of the peer, if it has proposed the connection
	echo     ID      // the peer according to its refusal, until Names.Peer is known

	reading bool // readers may run
	halting bool // Stop was returned, and Stopped not called yet
}

// NewSession returns the session of a lane of a link. larger says that the NodeID of this side is larger than that of the
// peer.
func NewSession(names *Names, larger bool) *Session { return &Session{names: names, larger: larger} }

// less reports whether b is smaller than c.
func (s *Session) less(b, c ballot) bool {
	if b.generation != c.generation {
		return b.generation < c.generation
	}
	return b.ours != c.ours && c.ours == s.larger
}

// Propose proposes a connection that this side has made. An earlier one is dropped.
func (s *Session) Propose(c *Conn) (a Action) {
	s.seen++
	s.promise(&a, c, ballot{s.seen, true}, Opening{})
	return a
}

// promise makes c the current connection. Numbers are stated when no reader runs.
func (s *Session) promise(a *Action, c *Conn, b ballot, theirs Opening) {
	if s.conn != c {
		a.Close = s.conn
	}
	s.conn, s.promised, s.phase, s.theirs = c, b, stopping, theirs
	if s.reading && !s.halting {
		s.halting, a.Stop = true, true
	}
	if !s.halting {
		s.state(a)
	}
}

// Stopped notes that the readers have stopped: nothing arrives until a connection opens.
func (s *Session) Stopped() (a Action) {
	s.reading, s.halting = false, false
	if s.phase == stopping {
		s.state(&a)
	}
	return a
}

// state states the numbers of this side on the current connection, which opens if the peer has proposed it.
func (s *Session) state(a *Action) {
	isProposed := s.theirs.Kind == Open
	if isProposed && !s.isPeer(s.theirs.From) { // Another lane of the link has opened with another process meanwhile.
		s.drop(a)
		return
	}
	s.send(a)
	if isProposed {
		s.open(a, s.theirs)
	}
}

// send sends an Open on the current connection.
func (s *Session) send(a *Action) {
	to := s.names.Peer
	if to.IsZero() {
		if to = s.echo; s.theirs.Kind == Open {
			to = s.theirs.From
		}
	}
	s.phase = stated
	a.Send = s.conn
	a.Opening = Opening{Kind: Open, From: s.names.Self, To: to, Bound: !s.names.Peer.IsZero(), Generation: s.promised.generation}
}

// open opens the current connection.
func (s *Session) open(a *Action, theirs Opening) {
	s.names.Peer = theirs.From
	s.phase, s.reading, s.theirs = opened, true, Opening{}
	a.Opened, a.Theirs = s.conn, theirs
}

// drop closes the current connection.
func (s *Session) drop(a *Action) {
	a.Close = s.conn
	s.conn, s.phase, s.theirs = nil, none, Opening{}
}

// isPeer reports whether id can be the peer of the link.
func (s *Session) isPeer(id ID) bool { return s.names.Peer.IsZero() || id == s.names.Peer }

// Lost notes that a connection has ended. Its readers are stopped before the next one opens.
func (s *Session) Lost(c *Conn) {
	if c == s.conn {
		s.conn, s.phase, s.theirs = nil, none, Opening{}
	}
}

// Works reports whether the lane has a connection.
func (s *Session) Works() bool { return s.phase == opened }

// Current returns the current connection, which may not have opened yet, or nil.
func (s *Session) Current() *Conn { return s.conn }

// Received handles an opening of the peer on a connection. An error is a fault of the peer, and ends the link.
func (s *Session) Received(c *Conn, o Opening) (a Action, err error) {
	switch {
	case o.From.IsZero():
		return a, errors.New("lane: an opening without the name of its link")
	case o.Kind != Ended && o.Generation > s.seen && o.Generation-s.seen > generationStep:
		return a, fmt.Errorf("lane: an opening of generation %d, and the largest before is %d", o.Generation, s.seen)
	case o.Kind == Open && !c.Dialed:
		err = s.proposed(&a, c, o)
	case o.Kind == Open && c.Dialed:
		err = s.accepted(&a, c, o)
	case o.Kind == Refused && c.Dialed:
		err = s.refused(&a, c, o)
	case o.Kind == Ended && c.Dialed:
		s.ended(&a, c, o)
	default:
		err = fmt.Errorf("lane: an opening of kind %d on a connection that %v", o.Kind, map[bool]string{true: "this side has made", false: "the peer has made"}[c.Dialed])
	}
	return a, err
}

// proposed handles the proposal of a connection that the peer has made.
func (s *Session) proposed(a *Action, c *Conn, o Opening) error {
	peer := s.names.Peer
	switch {
	case c == s.conn:
		return errors.New("lane: a second proposal on a connection that was accepted")
	case !o.To.IsZero() && o.To != s.names.Self && o.Bound:
		a.Send, a.Opening = c, Opening{Kind: Ended, From: o.To, To: o.From}
		return nil
	case !o.To.IsZero() && o.To != s.names.Self:
		s.refuse(a, c, o)
		return nil
	case s.isPeer(o.From):
	case o.From.Incarnation == peer.Incarnation && o.From.Link < peer.Link:
		a.Close = c // It has waited since before that link ended.
		return nil
	case o.From.Incarnation == peer.Incarnation:
		a.End = fmt.Errorf("lane: %v has ended: the peer has begun %v", peer, o.From)
		return nil
	case o.To == s.names.Self && c.challenged == peer:
		a.End = fmt.Errorf("lane: %v has ended: the process of the peer is another one, with %v", peer, o.From)
		return nil
	default:
		c.challenged = peer
		s.refuse(a, c, o)
		return nil
	}
	s.seen = max(s.seen, o.Generation)
	b := ballot{o.Generation, false}
	if !s.less(s.promised, b) {
		s.refuse(a, c, o)
		return nil
	}
	s.promise(a, c, b, o)
	return nil
}

// refuse refuses a proposal.
func (s *Session) refuse(a *Action, c *Conn, o Opening) {
	if c.refusals++; c.refusals > refusalsMax {
		a.Close = c
		return
	}
	a.Send, a.Opening = c, Opening{Kind: Refused, From: s.names.Self, To: o.From, Generation: s.seen}
}

// accepted handles the answer to a proposal of this side.
func (s *Session) accepted(a *Action, c *Conn, o Opening) error {
	switch {
	case c != s.conn:
		a.Close = c // Another connection was proposed since.
		return nil
	case s.phase != stated || o.Generation != s.promised.generation:
		return fmt.Errorf("lane: an answer of generation %d to a proposal of generation %d", o.Generation, s.promised.generation)
	case o.To != s.names.Self:
		return fmt.Errorf("lane: an answer to %v, and %v has asked", o.To, s.names.Self)
	case !s.isPeer(o.From): // Another lane of the link has opened with another process meanwhile.
		s.drop(a)
		return nil
	}
	s.open(a, o)
	return nil
}

// refused handles the refusal of a proposal of this side: it proposes the connection again. Its readers are still stopped.
func (s *Session) refused(a *Action, c *Conn, o Opening) error {
	switch {
	case c != s.conn:
		a.Close = c // Another connection was proposed since.
		return nil
	case s.phase != stated:
		return errors.New("lane: the refusal of a connection that was not proposed")
	case o.To != s.names.Self:
		return fmt.Errorf("lane: a refusal of %v, and %v has asked", o.To, s.names.Self)
	}
	if c.refusals++; c.refusals > refusalsMax {
		s.drop(a)
		return nil
	}
	s.seen = max(s.seen, o.Generation) + 1
	s.promised.generation, s.echo = s.seen, o.From
	s.send(a)
	return nil
}

// ended handles the answer that the link of the peer has ended.
func (s *Session) ended(a *Action, c *Conn, o Opening) {
	if o.To == s.names.Self && o.From == s.names.Peer {
		a.End, a.Theirs = fmt.Errorf("lane: the peer has ended %v", o.From), o
		return
	}
	if c == s.conn {
		s.drop(a)
		return
	}
	a.Close = c
}
