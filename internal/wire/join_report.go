package wire

// A JoinReport says where one node is, to somebody who has sent a JoinStatus.
type JoinReport struct {
	Rank    int32 // AnyRank: it has none
	ID      [16]byte
	Name    string
	Addr    string // where others look for it first
	Record  []byte // as the node has sent it; the seed has not looked into it
	Missing string // why there is no Record; cut off after 2 KiB
}

func (JoinReport) joinType() joinType { return typeJoinReport }

func (m JoinReport) encode(e *joinEncoder) {
	if m.Rank < AnyRank {
		e.fail(errBadField)
	}
	e.u32(uint32(m.Rank))
	e.id(m.ID)
	e.name(m.Name, nameBytesMax)
	e.name(m.Addr, addrBytesMax)
	e.bytes(m.Record, RecordBytesMax)
	e.text(m.Missing)
}

func decodeJoinReport(d *decoder) JoinMessage {
	m := JoinReport{
		Rank:    int32(d.u32()),
		ID:      decodeID(d),
		Name:    decodeName(d, nameBytesMax),
		Addr:    decodeName(d, addrBytesMax),
		Record:  d.bytes(RecordBytesMax),
		Missing: decodeName(d, textBytesMax),
	}
	if m.Rank < AnyRank && d.err == nil {
		d.err = errBadField
	}
	return m
}
