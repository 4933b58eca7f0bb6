package lane

import "fmt"

// An ID names one side of a link.
type ID struct {
	Incarnation uint64 // of the process: random, not 0
	Link        uint64 // the number of the link in the process: later links to the same peer have larger ones
}

// IsZero reports whether the ID is unknown.
func (id ID) IsZero() bool { return id == ID{} }

func (id ID) String() string { return fmt.Sprintf("link %d of process %x", id.Link, id.Incarnation) }

// Names are the names of a link on both sides. The sessions of its lanes share them.
type Names struct {
	Self ID
	Peer ID // zero until a session has opened a connection
}

// A Kind is the kind of an [Opening].
type Kind uint8

const (
	// Open states the numbers of the sender. The side that has made the connection proposes it by an Open, and the other side
	// accepts it by one of the same generation.
	Open Kind = iota + 1
	// Refused answers an Open that cannot be used: the peer proposes the connection again, with a generation larger
	// than this one.
	Refused
	// Ended says that the link From has ended.
	Ended
)

// An Opening is the message at the beginning of the connection of a lane.
type Opening struct {
	Kind       Kind
	From, To   ID   // the link of the sender and that of the receiver; To is zero if the sender does not know it
	Bound      bool // the sender has opened connections with To
	Generation uint64
	Received   uint64 // by In, also of Ended if the sender knows it

	// The opening of a lane with bulk has the open grants of the sender. All grants up to Last that are not listed are finished.
	Last   uint64
	Grants []Progress // by their numbers, ascending
}

// checkGrants returns an error if the list of grants is not one.
func (o *Opening) checkGrants() error {
	before := uint64(0)
	for _, p := range o.Grants {
		if p.Grant <= before || p.Grant > o.Last {
			return fmt.Errorf("lane: an opening with grant %d after grant %d, and %d as the last", p.Grant, before, o.Last)
		}
		before = p.Grant
	}
	return nil
}

// A Tombstone is the rest of an ended link, for a lane, as long as the peer may propose connections for it.
type Tombstone struct {
	Names
	Received uint64
}

// Answer returns the answer to a proposal for the link. It reports false for other links.
func (t *Tombstone) Answer(o *Opening) (answer Opening, ok bool) {
	ok = o.Kind == Open && o.To == t.Self && o.From == t.Peer
	return Opening{Kind: Ended, From: t.Self, To: o.From, Received: t.Received}, ok
}
