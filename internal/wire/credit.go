package wire

import "encoding/binary"

// A Class of ungranted data has its own credit, so that messages without a receiver do not use
// up the credit of collectives.
type Class uint8

const (
	Messages    Class = iota // from rank to rank
	Collectives              // steps of collectives
	Classes                  // number of classes
)

// A Credit returns Bytes of credit, which the receiver has consumed.
type Credit struct {
	Class Class
	Bytes uint32
}

// Append appends c to b.
func (c *Credit) Append(b []byte) []byte {
	b = append(b, byte(TypeCredit), byte(c.Class))
	return binary.BigEndian.AppendUint32(b, c.Bytes)
}

// ParseCredit decodes a [TypeCredit] frame.
func ParseCredit(b []byte) (c Credit, err error) {
	d := body(b)
	c.Class = Class(d.u8())
	c.Bytes = d.u32()
	if c.Class >= Classes {
		d.fail(errValue)
	}
	return c, d.finish()
}
