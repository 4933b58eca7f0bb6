package wire

// A JoinRefusal is the seed's last message to a node that it does not admit.
// Its form is the same in every version of the protocol.
type JoinRefusal struct {
	Code RefusalCode
	Text string // for people; cut off after 2 KiB
}

// A RefusalCode says for programs what the text of a refusal says for people.
// Codes that a reader does not know are legal.
type RefusalCode uint16

const (
	RefusedMalformed RefusalCode = iota + 1 // what the node sent makes no sense
	RefusedVersion                          // another version of the protocol
	RefusedToken                            // no cluster token, or the wrong one
	RefusedRank                             // the wanted rank is taken or too large
	RefusedAddress                          // no address under which others could reach the node
	RefusedFull                             // all places are taken
	RefusedOver                             // the world has formed already, or has failed to
	RefusedBusy                             // others ask as much as the seed can answer
)

func (JoinRefusal) joinType() joinType { return typeJoinRefusal }

func (m JoinRefusal) encode(e *joinEncoder) {
	e.u16(uint16(m.Code))
	e.text(m.Text)
}

func decodeJoinRefusal(d *decoder) JoinMessage {
	return JoinRefusal{Code: RefusalCode(d.u16()), Text: decodeName(d, textBytesMax)}
}
