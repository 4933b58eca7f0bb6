package wire

// A JoinPing asks whether the peer still works. A node returns the seed's.
type JoinPing struct{ Seq uint64 }

func (JoinPing) joinType() joinType { return typeJoinPing }

func (m JoinPing) encode(e *joinEncoder) { e.u64(m.Seq) }

func decodeJoinPing(d *decoder) JoinMessage { return JoinPing{Seq: d.u64()} }
