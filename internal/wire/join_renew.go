package wire

// A JoinRenew asks the seed for the node's next certificate. Its signing
// request is made with the same key as the first.
type JoinRenew struct {
	CSR []byte // PKCS #10, DER
}

func (JoinRenew) joinType() joinType { return typeJoinRenew }

func (m JoinRenew) encode(e *joinEncoder) { e.bytes(m.CSR, certificateBytesMax) }

func decodeJoinRenew(d *decoder) JoinMessage {
	return JoinRenew{CSR: d.bytes(certificateBytesMax)}
}
