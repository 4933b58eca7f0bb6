package wire

// A JoinReady says that the node is connected to all others of the view.
type JoinReady struct{ Epoch uint64 }

func (JoinReady) joinType() joinType { return typeJoinReady }

func (m JoinReady) encode(e *joinEncoder) { e.u64(m.Epoch) }

func decodeJoinReady(d *decoder) JoinMessage { return JoinReady{Epoch: d.u64()} }
