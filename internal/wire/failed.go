package wire

import "encoding/binary"

// A Failed tells that the node with identity Node has failed in the view with
// Epoch, as its sender or someone before it has seen. Length bytes of text, the
// reason, follow.
type Failed struct {
	Node   [16]byte
	Epoch  uint64
	Length int
}

const failedSize = 1 + 16 + 8 + 4

// Append adds f and text, clipped to TextMax bytes, to b.
func (f *Failed) Append(b []byte, text string) []byte {
	text = clip(text)
	b = append(b, byte(TypeFailed))
	b = append(b, f.Node[:]...)
	b = binary.BigEndian.AppendUint64(b, f.Epoch)
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// ParseFailed decodes the fixed part of a TypeFailed frame.
func ParseFailed(b []byte) (f Failed, err error) {
	d := body(b)
	copy(f.Node[:], d.take(16))
	f.Epoch = d.u64()
	f.Length = d.length(TextMax)
	return f, d.finish()
}
