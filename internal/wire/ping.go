package wire

import "encoding/binary"

// A Ping asks for a Pong with the same number, as a sign of life.
type Ping struct {
	Number uint64
}

const pingSize = 1 + 8

// Append adds p as a frame of type t, TypePing or TypePong, to b.
func (p *Ping) Append(b []byte, t Type) []byte {
	b = append(b, byte(t))
	return binary.BigEndian.AppendUint64(b, p.Number)
}

// ParsePing decodes a TypePing or TypePong frame.
func ParsePing(b []byte) (p Ping, err error) {
	d := body(b)
	p.Number = d.u64()
	return p, d.finish()
}
