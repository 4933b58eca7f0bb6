package wire

// ResumeSize is the length of a Resume in bytes.
const ResumeSize = 8 + 8 + 2*8*int(Lanes)

// A Resume follows the preamble of the control lane of a connection that is proposed or accepted. It counts,
// for each lane, the frames that the sender has written to all connections of the link, and those
// that it has read and handled. Frames that may be lost, as [TypePing], are not counted. If the
// counts of both sides agree, nothing was lost with the last connection.
type Resume struct {
	// Number grows with each Resume of the sender. If a connection with a larger number was used since, the
	// counts are old.
	Number uint64
	// Losses is the number of earlier links to the peer that have ended since frames were lost.
	Losses        uint64
	Sent, Handled [Lanes]uint64
}

func (r *Resume) fields(c *codec) {
	c.u64(&r.Number)
	c.u64(&r.Losses)
	for lane := range Lanes {
		c.u64(&r.Sent[lane])
		c.u64(&r.Handled[lane])
	}
}

// Append appends r to b.
func (r *Resume) Append(b []byte) []byte {
	c := encoder(b)
	r.fields(&c)
	return c.b
}

// ParseResume decodes a Resume.
func ParseResume(b []byte) (r Resume, err error) {
	c := codec{decoder: decoder{b: b}}
	r.fields(&c)
	return r, c.finish()
}

// IsCounted reports whether a [Resume] counts frames of type t. Heartbeats, questions that are
// repeated, their answers, views, reports of leaving nodes, and the frames of the end of a connection are not counted. The seed
// sends views again, and reports of leaving nodes arrive over other links as well.
func IsCounted(t Type) bool {
	switch t {
	case TypePing, TypePong, TypeQuery, TypeWhere, TypeAsk, TypeWaits, TypeView, TypeLeaving, TypeBye, TypeByeAck:
		return false
	}
	return true
}
