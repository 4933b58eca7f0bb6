package wire

// A JoinRenewed gives a node its next certificate.
type JoinRenewed struct {
	Certificate []byte // DER
}

func (JoinRenewed) joinType() joinType { return typeJoinRenewed }

func (m JoinRenewed) encode(e *joinEncoder) { e.bytes(m.Certificate, certificateBytesMax) }

func decodeJoinRenewed(d *decoder) JoinMessage {
	return JoinRenewed{Certificate: d.bytes(certificateBytesMax)}
}
