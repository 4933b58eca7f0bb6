package wire

// AnyRank as JoinRequest.Rank leaves the rank to the seed.
const AnyRank = -1

// A JoinRequest asks the seed for a place in the world.
type JoinRequest struct {
	CSR        []byte   // PKCS #10, DER
	Advertised []string // the node's addresses, if it was told them; else the seed finds out
	Extra      []string // further addresses under which the node may be reached
	Port       uint16   // where the node listens, 0: where this conn comes from
	Host       string   // the same for all nodes of one host, and only for them
	Name       string   // for people: hostname:pid
	Rank       int32    // AnyRank, or the only rank that the node accepts
	Spare      bool     // the node is to replace one that has gone
	Again      bool     // a seed has admitted the node before, and the conn to it has ended
	Epoch      uint64   // of the newest view that the node has then; 0: none
}

func (JoinRequest) joinType() joinType { return typeJoinRequest }

func (m JoinRequest) encode(e *joinEncoder) {
	e.bytes(m.CSR, certificateBytesMax)
	e.names(m.Advertised)
	e.names(m.Extra)
	e.u16(m.Port)
	e.name(m.Host, nameBytesMax)
	e.name(m.Name, nameBytesMax)
	if m.Rank < AnyRank {
		e.fail(errBadField)
	}
	e.u32(uint32(m.Rank))
	e.flag(m.Spare)
	e.flag(m.Again)
	e.u64(m.Epoch)
}

func decodeJoinRequest(d *decoder) JoinMessage {
	m := JoinRequest{
		CSR:        d.bytes(certificateBytesMax),
		Advertised: decodeNames(d),
		Extra:      decodeNames(d),
		Port:       d.u16(),
		Host:       decodeName(d, nameBytesMax),
		Name:       decodeName(d, nameBytesMax),
		Rank:       int32(d.u32()),
		Spare:      d.flag(),
		Again:      d.flag(),
		Epoch:      d.u64(),
	}
	if m.Rank < AnyRank && d.err == nil {
		d.err = errBadField
	}
	return m
}
