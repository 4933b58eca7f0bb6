package wire

// A JoinAnswer is the seed's answer to the JoinHello of a node that holds the
// cluster token.
type JoinAnswer struct {
	Proof   []byte // 32 bytes, or none: the cluster has no token
	Cluster string
}

func (JoinAnswer) joinType() joinType { return typeJoinAnswer }

func (m JoinAnswer) encode(e *joinEncoder) {
	e.proof(m.Proof)
	e.name(m.Cluster, nameBytesMax)
}

func decodeJoinAnswer(d *decoder) JoinMessage {
	return JoinAnswer{Proof: decodeProof(d), Cluster: decodeName(d, nameBytesMax)}
}
