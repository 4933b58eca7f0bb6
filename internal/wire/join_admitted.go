package wire

// A JoinAdmitted gives a node its identity and a place in the world.
type JoinAdmitted struct {
	Certificate []byte // DER
	CA          []byte // DER
	ID          [16]byte
	Observed    string // the address that the node's packets come from
	World       uint32 // how many nodes the world will have
	// Lasting says that the seeds keep what they know: a node whose conn to one ends
	// looks for another, at Seeds too, and for this one.
	Lasting bool
	Seeds   []string
}

func (JoinAdmitted) joinType() joinType { return typeJoinAdmitted }

func (m JoinAdmitted) encode(e *joinEncoder) {
	e.bytes(m.Certificate, certificateBytesMax)
	e.bytes(m.CA, certificateBytesMax)
	e.id(m.ID)
	e.name(m.Observed, addrBytesMax)
	e.u32(m.World)
	e.flag(m.Lasting)
	e.names(m.Seeds)
}

func decodeJoinAdmitted(d *decoder) JoinMessage {
	return JoinAdmitted{
		Certificate: d.bytes(certificateBytesMax),
		CA:          d.bytes(certificateBytesMax),
		ID:          decodeID(d),
		Observed:    decodeName(d, addrBytesMax),
		World:       d.u32(),
		Lasting:     d.flag(),
		Seeds:       decodeNames(d),
	}
}
