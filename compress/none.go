package compress

import (
	"slices"

	"github.com/nexar-go/nexar/device"
)

// None encodes vectors unchanged, bit for bit. It is a [TypedCompressor] of all types and
// operations. It has no state and may be shared.
type None struct{}

// Append appends the encoding of src to dst. It never fails.
func (None) Append(dst []byte, src []float32) ([]byte, error) {
	return None{}.AppendTyped(dst, device.Float32, memory(src))
}

// AddTo adds an encoded vector, of the length of dst, to dst. An invalid encoding is a
// [*FormatError] and leaves dst unchanged.
func (None) AddTo(dst []float32, encoded []byte) error {
	return None{}.AddTyped(memory(dst), device.Float32, encoded)
}

// MaxBytes returns the number of bytes that Append adds for n elements: 16, and 4 for each.
func (None) MaxBytes(n int) int { return None{}.MaxTypedBytes(device.Float32, n) }

// Allows implements [TypedCompressor]. It reports whether op is defined for the type.
func (None) Allows(t device.Type, op device.Op) bool { return op.Defined(t) }

// AppendTyped implements [TypedCompressor]. It never fails.
func (None) AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error) {
	n := len(src) / t.Size()
	dst = slices.Grow(dst, None{}.MaxTypedBytes(t, n))
	dst = header{kind: kindNone, typ: t, n: n}.append(dst)
	return appendElements(dst, t, src), nil
}

// DecodeTyped implements [TypedCompressor].
func (None) DecodeTyped(dst []byte, t device.Type, encoded []byte) error {
	body, err := noneBody(len(dst), t, encoded)
	if err == nil {
		loadElements(dst, t, body)
	}
	return err
}

// AddTyped implements [TypedCompressor].
func (None) AddTyped(dst []byte, t device.Type, encoded []byte) error {
	body, err := noneBody(len(dst), t, encoded)
	if err == nil {
		addElements(dst, t, body)
	}
	return err
}

// noneBody checks an encoding of a vector of so many bytes and returns its elements.
func noneBody(bytes int, t device.Type, encoded []byte) (body []byte, err error) {
	body, err = header{kind: kindNone, typ: t, n: bytes / t.Size()}.cutPlain(encoded)
	if err == nil {
		err = kindNone.checkBytes(body, bytes)
	}
	return body, err
}

// MaxTypedBytes implements [TypedCompressor]: 16 bytes, and the size of each element.
func (None) MaxTypedBytes(t device.Type, n int) int { return headerBytes + t.Size()*n }

// String returns the kind of the encodings: "none".
func (None) String() string { return kindNone.String() }
