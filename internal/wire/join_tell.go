package wire

// RecordBytesMax is how long the record of a node is at the most.
const RecordBytesMax = 32 << 10

// A JoinTell is a node's answer to a JoinAsk.
type JoinTell struct {
	Number uint64 // of the JoinAsk
	Record []byte // opaque to all but those who have asked the seed; none: there is none yet
}

func (JoinTell) joinType() joinType { return typeJoinTell }

func (m JoinTell) encode(e *joinEncoder) {
	e.u64(m.Number)
	e.bytes(m.Record, RecordBytesMax)
}

func decodeJoinTell(d *decoder) JoinMessage {
	return JoinTell{Number: d.u64(), Record: d.bytes(RecordBytesMax)}
}
