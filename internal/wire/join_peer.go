package wire

// A JoinPeer is the first message of a seed to another one of its cluster, after the
// JoinAnswer, and the answer to that. JoinLogs follow it.
type JoinPeer struct {
	Seed  uint64 // which of the seeds it is
	World uint32 // how many nodes a world forms with
	Proof []byte // that it holds the token of the seeds; empty if there is no token
}

func (JoinPeer) joinType() joinType { return typeJoinPeer }

func (m JoinPeer) encode(e *joinEncoder) {
	e.u64(m.Seed)
	e.u32(m.World)
	e.proof(m.Proof)
}

func decodeJoinPeer(d *decoder) JoinMessage {
	return JoinPeer{Seed: d.u64(), World: d.u32(), Proof: decodeProof(d)}
}
