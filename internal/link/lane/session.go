package lane

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/wire"
)

var (
	// ErrConnected says that the link uses a connection, or is about to.
	ErrConnected = errors.New("link: it has a connection already")
	// ErrAnswering says that the link proposes no connection while it accepts one.
	ErrAnswering = errors.New("link: a connection of the peer is being accepted")
	// ErrProposing says that the link proposes one connection at a time.
	ErrProposing = errors.New("link: another connection is being proposed")
	// ErrOld says that what a side has received was stated before the link used another connection.
	ErrOld = errors.New("link: the connection was proposed before the link used another one")
)

// A Session decides which connection carries a link: one at a time. It knows the link by its name on both sides.
type Session struct {
	Self, Peer wire.LinkID // Peer is zero before the first connection

	newest    uint64 // the largest number of the peer for a connection that was used
	ended     uint32 // number of connections that have ended
	inUse     bool   // a connection is being attached, or works
	proposing bool
	answering bool // a connection of the peer was accepted, and is not confirmed yet
}

// A Claim belongs to a connection that is proposed or accepted. A connection that is used meanwhile makes it old.
type Claim struct {
	number uint64 // see wire.Resume.Number
	ended  uint32 // Session.ended at that time
}

// Begin begins the proposal of a connection by this side, or the acceptance of one of the peer, with a number that is larger than all
// earlier ones of the process. The caller states what it has received afterwards.
func (s *Session) Begin(accepts bool, number uint64) (Claim, error) {
	switch {
	case s.inUse, s.answering && accepts:
		return Claim{}, ErrConnected
	case s.answering: // Its number would be larger than that of the acceptance, and the peer would take it for newer.
		return Claim{}, ErrAnswering
	case s.proposing && !accepts: // The peer takes a larger number for the end of earlier proposals.
		return Claim{}, ErrProposing
	}
	if accepts {
		s.answering = true
	} else {
		s.proposing = true
	}
	return Claim{number, s.ended}, nil
}

// GiveUp ends what Begin has begun, whether the connection is used or not.
func (s *Session) GiveUp(accepts bool) {
	if accepts {
		s.answering = false
	} else {
		s.proposing = false
	}
}

// State returns the beginning of the statement of this side for a connection. The caller adds what it has received.
func (s *Session) State(c Claim) wire.Resume {
	return wire.Resume{Number: c.number, From: s.Self, To: s.Peer}
}

// IsForEarlier reports whether the peer proposes a connection for an earlier link of this process.
func (s *Session) IsForEarlier(theirs *wire.Resume) bool {
	return theirs.To.Process == s.Self.Process && theirs.To != s.Self
}

// IsLost reports whether the peer has lost the connection in use, as it proposes another one.
func (s *Session) IsLost(theirs *wire.Resume) bool { return theirs.Number > s.newest }

// Check checks whether a connection that the peer has proposed or accepted belongs to the link, and was not proposed before another one that
// the link has used. hasEnded says that the link of the peer has ended.
func (s *Session) Check(theirs *wire.Resume) (hasEnded bool, err error) {
	unknown := wire.LinkID{}
	switch {
	case theirs.From == unknown:
		return true, errors.New("it has ended the link")
	case theirs.Number < s.newest:
		return false, ErrOld
	case s.Peer == unknown || theirs.From == s.Peer:
		return false, nil
	}
	return true, fmt.Errorf("it has ended link %d, and this is its link %d", s.Peer.Link, theirs.From.Link)
}

// Bind makes the connection of a claim the one of the link, unless the link has used another one since the claim. The caller attaches it,
// and then calls Use, or Unbind.
func (s *Session) Bind(c Claim) error {
	switch {
	case s.inUse:
		return ErrConnected
	case s.ended != c.ended:
		return ErrOld
	}
	s.inUse = true
	return nil
}

// Unbind undoes Bind: the connection was not used.
func (s *Session) Unbind() { s.inUse = false }

// Use notes that the link uses a connection with the statement of the peer.
func (s *Session) Use(theirs *wire.Resume) {
	s.inUse, s.newest, s.Peer = true, max(s.newest, theirs.Number), cmp.Or(theirs.From, s.Peer)
}

// End notes that the connection in use has ended, and that no reader or writer uses it any more.
func (s *Session) End() {
	s.inUse = false
	s.ended++
}

// InUse reports whether a connection is being attached, or works.
func (s *Session) InUse() bool { return s.inUse }

// Ended returns the number of connections that have ended.
func (s *Session) Ended() int { return int(s.ended) }
