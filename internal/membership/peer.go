package membership

// A Peer is what this node knows of another node. [Peer.Next] is the table of everything that can happen to it.
type Peer struct {
	State     PeerState
	Conn      PeerConn
	Departure Departure
}

// A PeerConn is the connection of the link to a peer.
type PeerConn uint8

const (
	// Unconnected: there is none, and the last one has not broken.
	Unconnected PeerConn = iota
	// Direct and OverRelays: it works, as far as this node knows.
	Direct
	OverRelays
	// DirectBroke and OverRelaysBroke: it broke, and is not replaced yet.
	DirectBroke
	OverRelaysBroke
)

// IsBroken reports whether the last connection broke, and is not replaced yet.
func (c PeerConn) IsBroken() bool { return c >= DirectBroke }

// broke is the state after the break of a connection.
func (c PeerConn) broke() PeerConn {
	if c == OverRelays || c == OverRelaysBroke {
		return OverRelaysBroke
	}
	return DirectBroke
}

// tells reports whether the end of the link says something about the peer, and not only about the relays to it.
func (c PeerConn) tells(f PeerFacts) bool {
	return c == Direct || c == DirectBroke && f.Has(IsNeighbor)
}

// A Departure says what a peer that leaves still does for others. It only grows.
type Departure uint8

const (
	// Stays: the peer has not said that it leaves.
	Stays Departure = iota
	// Delivered: the other nodes have read all of its data. It may still relay.
	Delivered
	// Stopped: it forwards nothing any more.
	Stopped
)

// PeerFacts is a set of flags: what a node knows beside the state of a peer when an event happens.
type PeerFacts uint16

const (
	// IsNeighbor: this node may connect to the peer without a relay.
	IsNeighbor PeerFacts = 1 << iota
	// HasRelays: nodes that are not neighbors reach each other through relays.
	HasRelays
	// SelfLeaves: this node leaves the world.
	SelfLeaves
	// SelfOut: this node will not be in the next view, so that the others close their links to it.
	SelfOut
	// NoWay: the link has ended since no relay leads to the peer.
	NoWay
	// SharesMemory: the connection lasted as long as the process of the peer, unless one side closed it.
	SharesMemory
	// RefusesDials: a dial fails at once if the process of the peer has ended.
	RefusesDials
	// LinkOver: the link to the peer, which went over relays, has ended.
	LinkOver
	// WasNeeded: something has needed the last connection.
	WasNeeded
)

// If returns the facts if they hold, and otherwise none.
func (f PeerFacts) If(holds bool) PeerFacts {
	if holds {
		return f
	}
	return 0
}

// Has reports whether the set contains all flags of some.
func (f PeerFacts) Has(some PeerFacts) bool { return f&some == some }

// HasStopped reports whether the peer forwards nothing any more, or perhaps does not.
func (p Peer) HasStopped() bool {
	switch p.State {
	case PeerDoubted, PeerLeftLost, PeerFailed, PeerRemoved:
		return true
	}
	return p.Departure == Stopped
}

// Next is the table of transitions: the peer after an event, and the effects. An event that the table does not list brings no news and
// changes nothing.
func (p Peer) Next(e PeerEvent, f PeerFacts) (Peer, PeerEffects) {
	var effects PeerEffects
	switch e {
	case Connected:
		p.Conn = Direct
		return p, 0
	case ConnectedOverRelays:
		p.Conn = OverRelays
		return p, 0
	case ConnReleased, ConnClosed, ConnStalled, ConnBroke:
		return p.connEnded(e, f)
	case LinkLost, LinkClosed:
		leavesWithRelays := f.Has(SelfLeaves | HasRelays)
		if f.Has(NoWay) || f.Has(SelfOut) || leavesWithRelays && !p.Conn.tells(f) { // The relays may have ended, not the peer. Its neighbors watch it.
			e = SaysNothing
		} else if leavesWithRelays && p.State != PeerExpected {
			p.Departure = Stopped
		}
	case Goodbye: // Over relays it comes first, and the peer still relays.
		if p.Conn != OverRelays {
			effects = p.stops()
		}
	case ReportedGone:
		return p.reportedGone(f)
	case ReportedLeaving:
		if p.Departure != Stays {
			return p, 0
		}
		if effects = TellLeaving; p.waits() && (!p.State.IsGone() || f.Has(SelfLeaves)) || p.AwaitsAnswer() {
			effects |= AwaitProposal
		}
		p.Departure = Delivered
		return p, effects
	case NoGoodbye:
		effects, e = p.stops(), Goodbye
	case NoGoodbyeYet:
		e = Goodbye
	case Expected:
		p.Departure = Stays
	case SelfClosing:
		if p.HasStopped() {
			p.Departure = Stopped
		}
	}
	state, more := p.State.Next(e)
	if p.State = state; effects.Has(TellGone) && !f.Has(SelfLeaves|HasRelays) && !more.Has(ReportLeft) {
		effects &^= TellGone // It is no news.
	}
	if more.Has(Relink) {
		p.Conn = Unconnected
	}
	return p, effects | more
}

// waits reports whether the link of a member may still get its first connection, or the next one.
func (p Peer) waits() bool {
	return p.State != PeerExpected && p.Conn != Direct && p.Conn != OverRelays
}

// AwaitsAnswer reports whether this node has said goodbye to the peer over relays. They may lose the answer of a peer that leaves as well.
func (p Peer) AwaitsAnswer() bool { return p.State == PeerClosed && p.Conn == OverRelays }

// stops notes that the peer forwards nothing any more.
func (p *Peer) stops() PeerEffects {
	if p.Departure == Stopped {
		return 0
	}
	p.Departure = Stopped
	return TellGone
}

// reportedGone is Next for the report of another node that the peer has left.
func (p Peer) reportedGone(f PeerFacts) (Peer, PeerEffects) {
	switch {
	case f.Has(SelfLeaves), f.Has(LinkOver), p.State == PeerLeft: // The goodbye over relays, or ReportedLeaving, came before.
		if !f.Has(HasRelays) {
			return p, 0
		}
		effects := p.stops() // before p is returned
		return p, effects
	case p.State == PeerExpected, p.State.IsGone(), p.Conn == Direct: // Its goodbye arrives over its own connection.
		return p, 0
	case p.Conn == OverRelays:
		return p, AwaitGoodbye
	}
	return p, AwaitProposal
}

// connEnded is Next for the end of the connection of a link, which waits for the next one.
func (p Peer) connEnded(e PeerEvent, f PeerFacts) (Peer, PeerEffects) {
	isRelayed := p.Conn == OverRelays
	switch {
	case e == ConnReleased:
		if p.Conn = Unconnected; isRelayed && f.Has(IsNeighbor) {
			p.Conn = OverRelaysBroke
		}
		return p, 0
	case p.HasStopped(), p.State.IsGone() && p.State != PeerClosed: // A node that closes has to say goodbye.
		return p, EndLink
	case f.Has(SharesMemory) && !(e == ConnClosed && f.Has(HasRelays)): // The process has ended, or closes this link alone: in a full topology nothing replaces it.
		return p, EndLink
	case e == ConnBroke && !isRelayed && !f.Has(RefusesDials): // The process has ended, or was silent for too long.
		return p, EndLink
	}
	p.Conn = p.Conn.broke()
	if p.State == PeerExpected && !f.Has(IsNeighbor) { // The peer dials. It is a neighbor in the view that it is to enter.
		return p, 0
	}
	if e == ConnClosed && f&(IsNeighbor|WasNeeded) == 0 { // A former neighbor is dialed when it is needed.
		return p, 0
	}
	return p, Redial
}
