package wire

import "encoding/binary"

// A Message is a message from rank to rank. Length bytes of payload follow.
type Message struct {
	Comm   uint64
	Tag    int64
	Type   uint8 // element type, a kernel.Type
	Length int
}

// Append appends m to b. The caller sends the payload after it.
func (m *Message) Append(b []byte) []byte {
	b = append(b, byte(TypeMessage))
	b = binary.BigEndian.AppendUint64(b, m.Comm)
	b = binary.BigEndian.AppendUint64(b, uint64(m.Tag))
	b = append(b, m.Type)
	return binary.BigEndian.AppendUint32(b, uint32(m.Length))
}

// ParseMessage decodes a [TypeMessage] frame.
func ParseMessage(b []byte) (m Message, err error) {
	d := body(b)
	m.Comm = d.u64()
	m.Tag = int64(d.u64())
	m.Type = d.u8()
	m.Length = d.length(PayloadMax)
	return m, d.finish()
}
