package membership

import "fmt"

// A PeerState is the state of another node of the view from the perspective of this node.
//
// The states call for different actions: a peer that has left ends a communicator only if a
// collective on it needs the peer. A failed peer ends every communicator that contains it. So
// does a doubted peer, which others report as failed, but it keeps its link, since it may be in
// the next view. [PeerState.Next] is the table of its transitions, a part of that of [Peer.Next].
type PeerState uint8

const (
	// PeerLinked: no problem is known.
	PeerLinked PeerState = iota
	// PeerExpected: the peer is in no view yet, and may enter the next one. Until then, its link may come and go without consequences.
	PeerExpected
	// PeerSuspected: the peer has closed its link to a third node without a goodbye. Either it
	// has lost that node and reports so, or it has left and its goodbye to that node was lost.
	// Its own goodbye decides.
	PeerSuspected
	// PeerDoubted: another node has lost the peer, and the link of this node to it
	// works.
	PeerDoubted
	// PeerDoubting: the peer doubts this node, and has ended every communicator that
	// contains both. The link to it works.
	PeerDoubting
	// PeerLeft: the peer has said goodbye to this node.
	PeerLeft
	// PeerLeftLost: the peer has said goodbye to this node, and was lost by another
	// node, which its goodbye has not reached.
	PeerLeftLost
	// PeerExpectedLeft: the peer has said goodbye to this node before it entered a view.
	PeerExpectedLeft
	// PeerFailed: this node has lost its link to the peer without a goodbye.
	PeerFailed
	// PeerRemoved: the node is not in the newest view.
	PeerRemoved
	// PeerClosed: this node has closed, and all events are ignored.
	PeerClosed

	peerStates
)

// String returns the name of the state.
func (s PeerState) String() string {
	names := [...]string{"linked", "expected", "suspected", "doubted", "doubting", "left", "left and lost", "expected and left", "failed", "removed", "closed"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("PeerState(%d)", uint8(s))
}

// IsGone reports whether the peer sends nothing more.
func (s PeerState) IsGone() bool { return s >= PeerLeft }

// IsMember reports whether the peer is, or was, in a view.
func (s PeerState) IsMember() bool { return s != PeerExpected && s != PeerExpectedLeft }

// A PeerEvent is an event in the life of a peer.
type PeerEvent uint8

const (
	// NoEvent changes nothing.
	NoEvent PeerEvent = iota
	// LinkLost: this node has found its link to the peer broken or silent.
	LinkLost
	// LinkClosed: the link was closed without a goodbye, by the peer or by the
	// transport of this node. That does not imply that the peer has failed.
	LinkClosed
	// Goodbye: the peer has left, and everything that it sent was read.
	Goodbye
	// ReportedLost: another node has found its link to the peer broken.
	ReportedLost
	// ReportedClosed: the peer has closed its link to another node.
	ReportedClosed
	// DoubtsSelf: the peer doubts this node, which another node has lost.
	DoubtsSelf
	// AdoptedIn and AdoptedOut: this node has adopted a later view with or without the
	// peer. AdoptedUnlinked is AdoptedIn for a peer without a link.
	AdoptedIn
	AdoptedOut
	AdoptedUnlinked
	// Expected: the peer may enter the next view.
	Expected
	// SaysNothing: the link has ended, which implies nothing about the peer. [Peer.Next] makes this event of LinkLost or LinkClosed if no relay leads
	// to the peer, this node will not be in the next view, or it leaves and the relays may have ended.
	SaysNothing
	// SelfClosing: this node closes.
	SelfClosing
	// ReportedGone: another node says that the peer has left, and forwards nothing any more.
	ReportedGone
	// ReportedLeaving: the peer says, over others, that it leaves, and that the other nodes have read all of its data.
	ReportedLeaving
	// NoGoodbye: the wait after ReportedGone is over, and the peer has not said goodbye over a connection. NoGoodbyeYet is the same after ReportedLeaving:
	// the peer still relays.
	NoGoodbye
	NoGoodbyeYet
	// Connected and ConnectedOverRelays: the link has a connection.
	Connected
	ConnectedOverRelays
	// ConnReleased: this side has released the connection of the link, or both agreed that it is idle. ConnClosed: the peer has closed it, or has lost it.
	// ConnStalled: it has made no progress. ConnBroke: it has ended otherwise.
	ConnReleased
	ConnClosed
	ConnStalled
	ConnBroke
)

// PeerEffects is a set of flags for the actions of a transition. The seed hears first (Report), then the program (Notify), the other nodes
// (Tell), and the communicators of this node: when an operation has failed, the program may leave, and its goodbye must not arrive before the
// reason for it.
type PeerEffects uint32

const (
	// ReportLost reports to the seed that this node has lost its link to the peer.
	ReportLost PeerEffects = 1 << iota
	// ReportLeft reports to the seed that the peer has left, for a seed that has not
	// received the peer's own report.
	ReportLeft
	// NotifyFailed logs a failure and passes it to the program.
	NotifyFailed
	// NotifyLeft logs that the peer has left.
	NotifyLeft
	// NotifyLost reports that a peer that has left counts as failed after all, because another
	// node has lost it.
	NotifyLost
	// NotifyRemoved logs that the peer is no longer in the view.
	NotifyRemoved
	// TellLost tells every other node that the peer was lost. TellClosed tells them that the
	// peer has closed a link: to this node or, if this node relays a report, to the node in the
	// report.
	TellLost
	TellClosed
	// TellPeer tells the peer that this node doubts it.
	TellPeer
	// TellGone tells the neighbors that the peer has left, and TellLeaving that it leaves.
	TellGone
	TellLeaving
	// EndComms ends every communicator that contains the peer. New ones end at once,
	// until Trust.
	EndComms
	// RevokeComms is EndComms, and tells the other ranks of each communicator, which
	// may not have adopted the view yet and would not learn of its end otherwise.
	RevokeComms
	// EndOperations tells the engine that the peer has left. Messages with the peer
	// fail. A collective that needs the peer, now or later, revokes its communicator on
	// all ranks. Other communicators continue.
	EndOperations
	// Trust allows new communicators with the peer.
	Trust
	// DropLink closes the link to the peer without a goodbye.
	DropLink
	// SayGoodbye closes the link to the peer with a goodbye.
	SayGoodbye
	// Relink gives the peer a new link, since the last one has ended before the peer is in a view, and reports to the session that it has no connection.
	Relink
	// AwaitProposal waits until no connection is being negotiated with the peer: its goodbye comes over that, or NoGoodbye follows. AwaitGoodbye waits
	// for a goodbye over relays.
	AwaitProposal
	AwaitGoodbye
	// AskPeer lets the link connect: its end, or a goodbye, decides whether the peer has failed.
	AskPeer
	// Redial dials the peer again. EndLink ends its link, since no other connection can follow.
	Redial
	EndLink
)

// Has reports whether the set contains all flags of some.
func (e PeerEffects) Has(some PeerEffects) bool { return e&some == some }

// A PeerReport is the report of another node about a peer.
type PeerReport struct {
	Epoch  uint64 // of the reporter's view when it lost the peer
	Closed bool   // the peer has closed the link
	Self   bool   // the report is about this node, and the peer is its sender
}

// Event converts a report to an event, for a node that has adopted the view with this
// epoch. A report about an earlier view is no event: the seed knows it, and the peer
// may be in the newest view nevertheless.
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

// Next is the table of transitions: the state after an event, and the effects. An event that
// the table does not list for a state brings no news and changes nothing.
func (s PeerState) Next(e PeerEvent) (PeerState, PeerEffects) {
	switch {
	case s == PeerClosed:
		return s, 0
	case e == SelfClosing:
		return s.closing()
	case e == Expected:
		return PeerExpected, 0
	case e == AdoptedOut:
		return s.removed()
	}
	switch s {
	case PeerExpected:
		switch e {
		case LinkLost, LinkClosed, SaysNothing:
			return s, Relink
		case Goodbye:
			return PeerExpectedLeft, ReportLeft | NotifyLeft | EndOperations
		case AdoptedIn:
			return PeerLinked, Trust
		case AdoptedUnlinked:
			return PeerFailed, ReportLost
		}
	case PeerExpectedLeft:
		if e == AdoptedIn || e == AdoptedUnlinked { // The seed has not known.
			return PeerLeft, ReportLeft
		}
	case PeerLinked, PeerSuspected, PeerDoubting:
		return s.alive(e)
	case PeerDoubted:
		switch e {
		case ReportedClosed:
			return s, AskPeer
		case LinkLost, LinkClosed: // The other nodes know already.
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

// alive is Next for a peer that is not gone.
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
			return PeerSuspected, TellClosed | AskPeer
		}
		return s, AskPeer
	case DoubtsSelf:
		return PeerDoubting, EndComms
	case SaysNothing:
		return s, EndComms
	case AdoptedIn:
		return PeerLinked, Trust
	case AdoptedUnlinked:
		return PeerFailed, ReportLost
	}
	return s, 0
}

// removed is Next for a node that is no longer in the view. If it has failed or
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

// closing is Next when this node closes. A doubted peer has most likely ended, and gets
// no goodbye.
func (s PeerState) closing() (PeerState, PeerEffects) {
	if s == PeerDoubted {
		return PeerClosed, DropLink
	}
	return PeerClosed, SayGoodbye
}
