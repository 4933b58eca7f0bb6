package wire

import "encoding/binary"

// A Class of ungranted data has its own credit, so that messages without a receiver do
// not use up the credit of collectives.
type Class uint8

const (
	Messages    Class = iota // from rank to rank
	Collectives              // steps of collectives
	Classes                  // how many there are
)

// A Credit gives back Bytes of credit: the receiver has consumed them.
type Credit struct {
	Class Class
	Bytes uint32
}

const creditSize = 1 + 1 + 4

// Append adds c to b.
func (c *Credit) Append(b []byte) []byte {
	b = append(b, byte(TypeCredit), byte(c.Class))
	return binary.BigEndian.AppendUint32(b, c.Bytes)
}

// ParseCredit decodes a TypeCredit frame.
func ParseCredit(b []byte) (c Credit, err error) {
	d := body(b)
	c.Class = Class(d.u8())
	c.Bytes = d.u32()
	if c.Class >= Classes && d.err == nil {
		d.err = errTooLong
	}
	return c, d.finish()
}
