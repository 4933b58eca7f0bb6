package wire

import "encoding/binary"

// A Failed tells that the node By has lost its link to the node with identity Node
// in the view with Epoch. Its sender is By, or a node that repeats the report.
// Length bytes of text, the reason, follow.
type Failed struct {
	Node, By [16]byte
	Epoch    uint64
	// Closed says that Node has closed the link without a goodbye. The two can no longer
	// work together, but Node may live, and may report that it has lost By.
	Closed bool
	Length int
}

const failedSize = 1 + 16 + 16 + 8 + 1 + 4

// Append adds f and text, clipped to TextMax bytes, to b.
func (f *Failed) Append(b []byte, text string) []byte {
	text = clip(text)
	b = append(b, byte(TypeFailed))
	b = append(b, f.Node[:]...)
	b = append(b, f.By[:]...)
	b = binary.BigEndian.AppendUint64(b, f.Epoch)
	b = append(b, bit(f.Closed))
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// ParseFailed decodes the fixed part of a TypeFailed frame.
func ParseFailed(b []byte) (f Failed, err error) {
	d := body(b)
	copy(f.Node[:], d.take(16))
	copy(f.By[:], d.take(16))
	f.Epoch = d.u64()
	f.Closed = d.flag()
	f.Length = d.length(TextMax)
	return f, d.finish()
}
