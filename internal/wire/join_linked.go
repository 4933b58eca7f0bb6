package wire

// A JoinLinked says that the node is connected to all nodes of the world that the
// invitation with Number names. The seed believes it when these say so, too (JoinLink).
type JoinLinked struct{ Number uint64 }

func (JoinLinked) joinType() joinType { return typeJoinLinked }

func (m JoinLinked) encode(e *joinEncoder) { e.u64(m.Number) }

func decodeJoinLinked(d *decoder) JoinMessage { return JoinLinked{Number: d.u64()} }
