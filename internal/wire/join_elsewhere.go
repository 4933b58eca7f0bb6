package wire

// A JoinElsewhere is a seed's last message to somebody whom another seed has to
// answer: the one that leads.
type JoinElsewhere struct {
	Leader string // its address; empty: the seeds have not agreed on one yet
}

func (JoinElsewhere) joinType() joinType { return typeJoinElsewhere }

func (m JoinElsewhere) encode(e *joinEncoder) { e.name(m.Leader, addrBytesMax) }

func decodeJoinElsewhere(d *decoder) JoinMessage {
	return JoinElsewhere{Leader: decodeName(d, addrBytesMax)}
}
