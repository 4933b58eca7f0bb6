package wire

import "encoding/binary"

// A Closed says that its sender has closed a communicator after the collective
// with number Seq. It is the last frame for that communicator on the data
// lane; payloads granted before may still follow on the bulk lane.
type Closed struct {
	Comm uint64
	Seq  uint64
}

const closedSize = 1 + 8 + 8

// Append adds c to b.
func (c *Closed) Append(b []byte) []byte {
	b = append(b, byte(TypeClosed))
	b = binary.BigEndian.AppendUint64(b, c.Comm)
	return binary.BigEndian.AppendUint64(b, c.Seq)
}

// ParseClosed decodes a TypeClosed frame.
func ParseClosed(b []byte) (c Closed, err error) {
	d := body(b)
	c.Comm = d.u64()
	c.Seq = d.u64()
	return c, d.finish()
}
