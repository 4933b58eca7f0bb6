package wire

// A JoinAdmitted gives a node its identity and a place in the world.
type JoinAdmitted struct {
	Certificate []byte // DER
	CA          []byte // DER
	ID          [16]byte
	Observed    string // the address that the node's packets come from
	World       uint32 // how many nodes the world will have
}

func (JoinAdmitted) joinType() joinType { return typeJoinAdmitted }

func (m JoinAdmitted) encode(e *joinEncoder) {
	e.bytes(m.Certificate, certificateBytesMax)
	e.bytes(m.CA, certificateBytesMax)
	e.id(m.ID)
	e.name(m.Observed, addrBytesMax)
	e.u32(m.World)
}

func decodeJoinAdmitted(d *decoder) JoinMessage {
	return JoinAdmitted{
		Certificate: d.bytes(certificateBytesMax),
		CA:          d.bytes(certificateBytesMax),
		ID:          decodeID(d),
		Observed:    decodeName(d, addrBytesMax),
		World:       d.u32(),
	}
}
