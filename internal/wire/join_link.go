package wire

// A JoinLink says whether the node has a link to another one that it was told to expect,
// or to one that joins beside it: a node that joins takes part in a view only if the
// others confirm its links. The last one about a peer counts.
type JoinLink struct {
	Peer [16]byte
	Up   bool
}

func (JoinLink) joinType() joinType { return typeJoinLink }

func (m JoinLink) encode(e *joinEncoder) {
	e.id(m.Peer)
	e.flag(m.Up)
}

func decodeJoinLink(d *decoder) JoinMessage { return JoinLink{Peer: decodeID(d), Up: d.flag()} }
