package wire

// LogBytesMax is how long a part of a message of the seeds' log is at the most.
const LogBytesMax = 48 << 10

// A JoinLog is a part of a message of the log that seeds keep alike.
type JoinLog struct {
	More bool   // it goes on with the next one
	Data []byte // opaque to all but the log
}

func (JoinLog) joinType() joinType { return typeJoinLog }

func (m JoinLog) encode(e *joinEncoder) {
	e.flag(m.More)
	e.bytes(m.Data, LogBytesMax)
}

func decodeJoinLog(d *decoder) JoinMessage {
	return JoinLog{More: d.flag(), Data: d.bytes(LogBytesMax)}
}
