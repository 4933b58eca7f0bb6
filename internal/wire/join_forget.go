package wire

// A JoinForget says that a node does not join any more that the receiver was told to
// expect.
type JoinForget struct{ Peer [16]byte }

func (JoinForget) joinType() joinType { return typeJoinForget }

func (m JoinForget) encode(e *joinEncoder) { e.id(m.Peer) }

func decodeJoinForget(d *decoder) JoinMessage { return JoinForget{Peer: decodeID(d)} }
