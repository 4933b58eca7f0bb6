package membership

import "fmt"

// A PeerState is the knowledge of a node about the life of another node of its view.
//
// "Left", "failed" and "doubted" are different states, because they call for
// different actions: a peer that left in good order ends a communicator only if a
// collective on it needs the peer, a peer that failed ends every communicator that
// contains it, and a peer that others report as failed does so as well but keeps its
// link, since it may be in the next view. [PeerState.Next] is the table of all transitions.
type PeerState uint8

const (
	// PeerLinked is the state of a peer about which nothing is wrong.
	PeerLinked PeerState = iota
	// PeerSuspected is the state of a peer that has closed its link to a third node
	// without a goodbye. Either it takes that node for failed, and reports so, or it
	// has left and its goodbye to that node was lost. Its own goodbye tells which.
	PeerSuspected
	// PeerDoubted is the state of a peer that another node has lost. The link of this
	// node to it stands.
	PeerDoubted
	// PeerDoubting is the state of a peer that doubts this node: it has ended every
	// communicator that contains both. The link to it stands.
	PeerDoubting
	// PeerLeft is the state of a peer that has said goodbye to this node.
	PeerLeft
	// PeerLeftLost is the state of a peer that has said goodbye to this node, and
	// was lost by another node, which its goodbye has not reached.
	PeerLeftLost
	// PeerFailed is the state of a peer after this node has lost its link to it without
	// a goodbye.
	PeerFailed
	// PeerRemoved is the state of a node that is not in the newest view.
	PeerRemoved
	// PeerClosed is the state of every peer once this node closes: nothing matters
	// any more.
	PeerClosed

	peerStates
)

// String names the state.
func (s PeerState) String() string {
	names := [...]string{"linked", "suspected", "doubted", "doubting", "left", "left and lost", "failed", "removed", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("PeerState(%d)", uint8(s))
}

// IsGone reports whether nothing can come from the peer any more.
func (s PeerState) IsGone() bool { return s >= PeerLeft }

// A PeerEvent is something that a node learns about a peer.
type PeerEvent uint8

const (
	// NoEvent changes nothing.
	NoEvent PeerEvent = iota
	// LinkLost says that this node has found its link to the peer broken or silent.
	LinkLost
	// LinkClosed says that the link was closed without a goodbye: by the peer, or by
	// the transport of this node under it. Neither says that the peer has failed.
	LinkClosed
	// Goodbye says that the peer has left, and that everything it sent was read.
	Goodbye
	// ReportedLost says that another node has found its link to the peer broken.
	ReportedLost
	// ReportedClosed says that the peer has closed its link to another node.
	ReportedClosed
	// DoubtsSelf says that the peer doubts this node, which another node has lost.
	DoubtsSelf
	// AdoptedIn and AdoptedOut say that this node has adopted a later view, which
	// contains the peer or does not. AdoptedUnlinked is AdoptedIn for a peer without
	// a link.
	AdoptedIn
	AdoptedOut
	AdoptedUnlinked
	// Expected says that the peer may enter the next view. Until then its link may come
	// and go, which is no event.
	Expected
	// SelfClosing says that this node closes.
	SelfClosing
)

// PeerEffects are the actions that a transition calls for, a set of flags. They are
// carried out in the order of their declaration: the seed and the other nodes
// hear of a failure before operations on this node end because of it, since the
// program may leave as soon as a call has failed, and its goodbye must not
// arrive before the reason for it.
type PeerEffects uint16

const (
	// ReportLost tells the seed that this node has lost its link to the peer.
	ReportLost PeerEffects = 1 << iota
	// ReportLeft tells the session that the peer has left, for a seed that did not hear
	// the peer say so.
	ReportLeft
	// NotifyFailed writes a failure to the log and passes it to the program.
	NotifyFailed
	// NotifyLeft writes to the log that the peer has left.
	NotifyLeft
	// NotifyLost says that a peer that left in good order counts as failed after all,
	// because another node has lost it.
	NotifyLost
	// NotifyRemoved writes to the log that the peer is not in the view any more.
	NotifyRemoved
	// TellLost tells every other node that the peer was lost, and TellClosed that the
	// peer has closed a link: the node that did so is this one or, if this
	// node repeats a report, the node that the report names.
	TellLost
	TellClosed
	// TellPeer tells the peer that this node doubts it.
	TellPeer
	// EndComms ends every communicator that contains the peer. Those that are made
	// later end at once, until Trust.
	EndComms
	// RevokeComms is EndComms, and tells the other ranks of each communicator, which may
	// not have adopted the view yet. Nothing else tells them that it has ended here.
	RevokeComms
	// EndOperations tells the engine that the peer has left. Messages with the peer
	// fail. A collective that needs the peer, running or called later, revokes its
	// communicator on all ranks. Other communicators go on.
	EndOperations
	// Trust allows new communicators with the peer.
	Trust
	// DropLink closes the link to the peer without a goodbye.
	DropLink
	// SayGoodbye closes the link to the peer in good order.
	SayGoodbye
)

// Has reports whether the set contains all of some.
func (e PeerEffects) Has(some PeerEffects) bool { return e&some == some }

// A PeerReport is the report of another node about a peer.
type PeerReport struct {
	Epoch  uint64 // of the reporter's view when it lost the peer
	Closed bool   // the peer has closed the link
	Self   bool   // the report is about this node, and the peer is its sender
}

// Event converts a report to an event, for a node that has adopted the view with this epoch.
// A report about an earlier view is none: the peer may be in the newest one although
// it was lost before, and the seed knows.
func (r PeerReport) Event(epoch uint64) PeerEvent {
	switch {
	case r.Epoch < epoch, r.Self && r.Closed:
		return NoEvent
	case r.Self:
		return DoubtsSelf
	case r.Closed:
		return ReportedClosed
	}
	return ReportedLost
}

// Next is the table of transitions: the state after an event, and the effects. An event that the table does not list for a state changes nothing: its
// consequences have been drawn before.
func (s PeerState) Next(e PeerEvent) (PeerState, PeerEffects) {
	switch {
	case s == PeerClosed:
		return s, 0
	case e == SelfClosing:
		return s.closing()
	case e == Expected:
		return PeerLinked, 0
	case e == AdoptedOut:
		return s.removed()
	}
	switch s {
	case PeerLinked, PeerSuspected, PeerDoubting:
		return s.alive(e)
	case PeerDoubted:
		switch e {
		case LinkLost, LinkClosed: // The others know.
			return PeerFailed, ReportLost | EndComms
		case Goodbye:
			return PeerLeftLost, ReportLeft | NotifyLeft | EndComms | EndOperations
		case AdoptedIn:
			return PeerLinked, Trust
		case AdoptedUnlinked:
			return PeerFailed, ReportLost
		}
	case PeerRemoved:
		if e == AdoptedUnlinked {
			return PeerFailed, ReportLost
		}
	case PeerLeft:
		switch e {
		case ReportedLost:
			return PeerLeftLost, NotifyLost | TellLost | EndComms
		case ReportedClosed:
			return PeerLeftLost, NotifyLost | TellClosed | EndComms
		}
	}
	return s, 0
}

// alive is Next for a peer that this node works with.
func (s PeerState) alive(e PeerEvent) (PeerState, PeerEffects) {
	switch e {
	case LinkLost:
		return PeerFailed, ReportLost | NotifyFailed | TellLost | EndComms
	case LinkClosed:
		return PeerFailed, ReportLost | NotifyFailed | TellClosed | EndComms
	case Goodbye:
		if s == PeerSuspected { // The goodbye to the other node was lost.
			return PeerLeftLost, ReportLeft | NotifyLeft | NotifyLost | EndComms | EndOperations
		}
		return PeerLeft, ReportLeft | NotifyLeft | EndOperations
	case ReportedLost:
		return PeerDoubted, NotifyFailed | TellLost | TellPeer | EndComms
	case ReportedClosed:
		if s == PeerLinked {
			return PeerSuspected, TellClosed
		}
	case DoubtsSelf:
		return PeerDoubting, EndComms
	case AdoptedIn:
		return PeerLinked, Trust
	case AdoptedUnlinked:
		return PeerFailed, ReportLost
	}
	return s, 0
}

// removed is Next for a node that is not in the view any more. If it has failed or
// left, the operations that need it have ended before.
func (s PeerState) removed() (PeerState, PeerEffects) {
	switch s {
	case PeerLinked, PeerSuspected, PeerDoubting:
		return PeerRemoved, NotifyRemoved | RevokeComms | DropLink
	case PeerRemoved:
		return s, 0
	}
	return PeerRemoved, DropLink
}

// closing is Next when this node closes. Most likely nobody is there to say goodbye
// to at the other end of a doubted link.
func (s PeerState) closing() (PeerState, PeerEffects) {
	if s == PeerDoubted {
		return PeerClosed, DropLink
	}
	return PeerClosed, SayGoodbye
}
