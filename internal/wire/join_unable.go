package wire

// A JoinUnable says that the node cannot reach one of the view, and why.
type JoinUnable struct {
	Epoch uint64
	Peer  [16]byte
	// Left says that Peer has said goodbye to the node. It is repeated to a seed that
	// takes the place of the one that Peer has told.
	Left bool
	Text string // cut off after 2 KiB
}

func (JoinUnable) joinType() joinType { return typeJoinUnable }

func (m JoinUnable) encode(e *joinEncoder) {
	e.u64(m.Epoch)
	e.id(m.Peer)
	e.flag(m.Left)
	e.text(m.Text)
}

func decodeJoinUnable(d *decoder) JoinMessage {
	return JoinUnable{Epoch: d.u64(), Peer: decodeID(d), Left: d.flag(), Text: decodeName(d, textBytesMax)}
}
