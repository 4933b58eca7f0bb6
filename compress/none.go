package compress

import (
	"encoding/binary"
	"slices"

	"github.com/nexar-go/nexar/device"
)

// None encodes vectors as they are, bit for bit. It is a [TypedCompressor] of all types and
// operations, has no state and may be shared.
type None struct{}

// Append appends the encoding of src to dst. It never fails.
func (None) Append(dst []byte, src []float32) ([]byte, error) {
	dst = slices.Grow(dst, None{}.MaxBytes(len(src)))
	return appendFloats(appendHeader(dst, kindNone, 0, len(src)), src), nil
}

// AddTo adds the vector of an encoding to dst, which has the same length. Invalid encodings
// are a *FormatError and leave dst as it was.
func (None) AddTo(dst []float32, encoded []byte) error {
	body, err := cutPlainHeader(encoded, kindNone, len(dst))
	if err != nil {
		return err
	}
	if err := kindNone.checkBytes(body, 4*len(dst)); err != nil {
		return err
	}
	addFloats(dst, body)
	return nil
}

// MaxBytes returns the number of bytes that Append adds for n elements: 16, and 4 for each.
func (None) MaxBytes(n int) int { return headerBytes + 4*n }

// Allows implements [TypedCompressor]: it reports whether op is defined for the type.
func (None) Allows(t device.Type, op device.Op) bool { return op.Defined(t) }

// AppendTyped implements [TypedCompressor]. It never fails.
func (None) AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error) {
	n := len(src) / t.Size()
	dst = slices.Grow(dst, None{}.MaxTypedBytes(t, n))
	dst = appendHeader(dst, kindNone, typedParam(t), n)
	at := len(dst)
	dst = append(dst, src...)
	toLittleEndian(dst[at:], t)
	return dst, nil
}

// DecodeTyped implements [TypedCompressor]. Invalid encodings are a *FormatError and leave
// dst as it was.
func (None) DecodeTyped(dst []byte, t device.Type, encoded []byte) error {
	param, body, err := cutHeader(encoded, kindNone, len(dst)/t.Size())
	if err != nil {
		return err
	}
	if param != typedParam(t) {
		return kindNone.malformed(paramOffset, "elements of type %v, want %v", device.Type(param), t)
	}
	if err := kindNone.checkBytes(body, len(dst)); err != nil {
		return err
	}
	copy(dst, body)
	toLittleEndian(dst, t)
	return nil
}

// MaxTypedBytes implements [TypedCompressor]: 16, and the size of each element.
func (None) MaxTypedBytes(t device.Type, n int) int { return headerBytes + t.Size()*n }

// String is the kind of the encodings: "none".
func (None) String() string { return kindNone.String() }

// toLittleEndian converts elements between the byte order of the host and little-endian, in
// place.
func toLittleEndian(mem []byte, t device.Type) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return
	}
	size := t.Size()
	if t.Complex() {
		size /= 2
	}
	for ; len(mem) > 0; mem = mem[size:] {
		slices.Reverse(mem[:size])
	}
}
