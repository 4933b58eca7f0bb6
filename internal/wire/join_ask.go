package wire

// A JoinAsk asks a node for its record, which it returns in a JoinTell with the same
// Number.
type JoinAsk struct{ Number uint64 }

func (JoinAsk) joinType() joinType { return typeJoinAsk }

func (m JoinAsk) encode(e *joinEncoder) { e.u64(m.Number) }

func decodeJoinAsk(d *decoder) JoinMessage { return JoinAsk{Number: d.u64()} }
