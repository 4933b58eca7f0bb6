package wire

// A JoinFormed says that every node of the view is connected to all others.
type JoinFormed struct{ Epoch uint64 }

func (JoinFormed) joinType() joinType { return typeJoinFormed }

func (m JoinFormed) encode(e *joinEncoder) { e.u64(m.Epoch) }

func decodeJoinFormed(d *decoder) JoinMessage { return JoinFormed{Epoch: d.u64()} }
