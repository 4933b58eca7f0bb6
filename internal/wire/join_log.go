package wire

// LogBytesMax is the maximum length of the data of a JoinLog.
const LogBytesMax = 48 << 10

// A JoinPeer is the first message of a seed to another seed of its cluster
// after the JoinAnswer, and the other seed's answer to it. JoinLogs follow.
type JoinPeer struct {
	Seed  uint64 // number of the sender
	World uint32 // initial size of the world
	Proof []byte // proof of the seeds' token; empty if there is no token
}

func (m JoinPeer) code(c *joinCodec) JoinMessage {
	c.u64(&m.Seed)
	c.u32(&m.World)
	c.proof(&m.Proof)
	return m
}

// A JoinLog is a part of a message of the log that the seeds replicate.
type JoinLog struct {
	More bool   // the next JoinLog continues the message
	Data []byte // opaque to this package
}

func (m JoinLog) code(c *joinCodec) JoinMessage {
	c.flag(&m.More)
	c.bytes(&m.Data, LogBytesMax)
	return m
}
