package wire

// A JoinCall asks the nodes of the view with Epoch to come to rest, since others
// want to join.
type JoinCall struct{ Epoch uint64 }

func (JoinCall) joinType() joinType { return typeJoinCall }

func (m JoinCall) encode(e *joinEncoder) { e.u64(m.Epoch) }

func decodeJoinCall(d *decoder) JoinMessage { return JoinCall{Epoch: d.u64()} }
