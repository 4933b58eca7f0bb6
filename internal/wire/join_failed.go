package wire

// A JoinFailed says that the world will not form, and whose fault it is.
type JoinFailed struct {
	Text string // cut off after 2 KiB
}

func (JoinFailed) joinType() joinType { return typeJoinFailed }

func (m JoinFailed) encode(e *joinEncoder) { e.text(m.Text) }

func decodeJoinFailed(d *decoder) JoinMessage {
	return JoinFailed{Text: decodeName(d, textBytesMax)}
}
