package wire

import "encoding/binary"

// ResumeSize is the length of a Resume in bytes, without its list of grants.
const ResumeSize = 8 + 4*8 + 2*8 + 8 + 8 + 4

// GrantsMax bounds the list of grants of a Resume.
const GrantsMax = 1 << 18

// A LinkID names a link on one side: the process, and the number of the link there. It is zero if it is unknown.
type LinkID struct{ Process, Link uint64 }

// A Resume follows the preamble of the control lane of a connection that is proposed or accepted. It says what its sender has
// received over all connections of the link. The peer repeats the rest.
type Resume struct {
	// Number grows with each Resume of the sender. If a connection with a larger number was used since, the
	// Resume is old.
	Number   uint64
	From, To LinkID    // the link of the sender and that of the peer; From is zero in the answer to the proposal for a link that the sender has ended
	Received [2]uint64 // bytes of numbered frames on the control and the data lane
	Bulk     uint64    // bytes of payload on the bulk lane
	Last     uint64    // the number of the latest grant
	Grants   []Progress
}

// A Progress is an open grant of the sender of a [Resume], for which Got bytes have arrived. Grants up to Resume.Last that are not
// in the list are finished.
type Progress struct{ Grant, Got uint64 }

func (r *Resume) head(c *codec) (grants uint32) {
	grants = uint32(len(r.Grants))
	for _, v := range []*uint64{
		&r.Number, &r.From.Process, &r.From.Link, &r.To.Process, &r.To.Link, &r.Received[Control], &r.Received[Data], &r.Bulk, &r.Last,
	} {
		c.u64(v)
	}
	if c.u32(&grants); grants > GrantsMax {
		c.fail(errTooLong)
	}
	return grants
}

// Append appends r to b.
func (r *Resume) Append(b []byte) []byte {
	c := encoder(b)
	r.head(&c)
	for _, p := range r.Grants {
		c.b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(c.b, p.Grant), p.Got)
	}
	return c.b
}

// ResumeLength returns the length of a Resume that begins with the ResumeSize bytes b.
func ResumeLength(b []byte) (int, error) {
	c := codec{decoder: decoder{b: b}}
	n := new(Resume).head(&c)
	return ResumeSize + 16*int(n), c.finish()
}

// ParseResume decodes a Resume.
func ParseResume(b []byte) (r Resume, err error) {
	c := codec{decoder: decoder{b: b}}
	n := r.head(&c)
	elements(&c, &r.Grants, uint64(n), 16, func(p *Progress) { c.u64(&p.Grant); c.u64(&p.Got) })
	return r, c.finish()
}

// IsTransient reports whether a frame of type t belongs to its connection: it has no number, and is not repeated.
func IsTransient(t Type) bool {
	switch t {
	case TypeKey, TypeBeat, TypeAck, TypeFinished, TypeIdle, TypeByeAck:
		return true
	}
	return false
}
