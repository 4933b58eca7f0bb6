package wire

// A JoinUnable says that the node cannot reach one of the view, and why.
type JoinUnable struct {
	Epoch uint64
	Peer  [16]byte
	Text  string // cut off after 2 KiB
}

func (JoinUnable) joinType() joinType { return typeJoinUnable }

func (m JoinUnable) encode(e *joinEncoder) {
	e.u64(m.Epoch)
	e.id(m.Peer)
	e.text(m.Text)
}

func decodeJoinUnable(d *decoder) JoinMessage {
	return JoinUnable{Epoch: d.u64(), Peer: decodeID(d), Text: decodeName(d, textBytesMax)}
}
