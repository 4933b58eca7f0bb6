package compress

import "slices"

// None encodes vectors as they are, bit for bit. It has no state and may be
// shared.
type None struct{}

// Append appends the encoding of src to dst. It never fails.
func (None) Append(dst []byte, src []float32) ([]byte, error) {
	dst = slices.Grow(dst, None{}.MaxBytes(len(src)))
	return appendFloats(appendHeader(dst, kindNone, 0, len(src)), src), nil
}

// AddTo adds the vector that encoded stands for to dst, which is of the same
// length. What None has not made is a *FormatError and leaves dst as it was.
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

// MaxBytes is how many bytes Append adds for n elements: 16, and 4 for each.
func (None) MaxBytes(n int) int { return headerBytes + 4*n }

// String is the kind of the encodings: "none".
func (None) String() string { return kindNone.String() }
