package compress

import "github.com/nexar-go/nexar/device"

// A TypedCompressor is a [Compressor] that also encodes vectors of other types than float32,
// without rounding them to float32, and vectors that are reduced by other operations than Sum.
//
// A compressed all-reduce uses the methods of Compressor for sums and averages of float32,
// Float16 and BFloat16 vectors. For other vectors and operations it calls Allows, with Sum for
// an average. If that reports true, it calls AppendTyped once and combines the encodings in the
// order of ranks: it decodes the first with DecodeTyped, and the others with AddTyped for a
// sum, or else with DecodeTyped followed by a reduction of its own. If Allows reports false,
// sums of float64 vectors are rounded to float32 and use the methods of Compressor, and other
// calls fail.
//
// Vectors are bytes in the byte order of the host, aligned for their type. They have a
// multiple of its size. A type that embeds a TypedCompressor and replaces methods of
// Compressor must replace the typed methods as well.
type TypedCompressor interface {
	Compressor

	// Allows reports whether vectors of type t can be reduced by op. Ranks with the same
	// String must report the same for each t and op that the program uses.
	Allows(t device.Type, op device.Op) bool

	// AppendTyped appends the encoding of src to dst and returns the extended slice. src is
	// neither changed nor kept. With an error AppendTyped returns dst unchanged.
	AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error)

	// DecodeTyped stores an encoded vector, of the length of dst, in dst. Like AddTo, it
	// depends on encoded alone, and an invalid encoding is an ErrFormat and leaves dst
	// unchanged.
	DecodeTyped(dst []byte, t device.Type, encoded []byte) error

	// AddTyped is AddTo for vectors of type t. It is called if Sum is allowed for t.
	AddTyped(dst []byte, t device.Type, encoded []byte) error

	// MaxTypedBytes returns the maximum number of bytes that AppendTyped adds for n elements.
	MaxTypedBytes(t device.Type, n int) int
}

// allowsFloat reports whether the operation is a sum of float32 or float64 elements, which is
// the condition of Allows for all compressors of this package but None.
func allowsFloat(t device.Type, op device.Op) bool {
	return op == device.Sum && (t == device.Float32 || t == device.Float64)
}

// appendTyped implements AppendTyped by a function for each floating-point type.
func (k kind) appendTyped(dst []byte, t device.Type, src []byte, append32 func([]byte, []float32) ([]byte, error), append64 func([]byte, []float64) ([]byte, error)) ([]byte, error) {
	switch t {
	case device.Float32:
		return append32(dst, vector[float32](src))
	case device.Float64:
		return append64(dst, vector[float64](src))
	}
	return dst, typeError(k.String(), t)
}

// A mode is an effect of decoding on the destination.
type mode bool

const (
	addMode   mode = false // the decoded vector is added
	storeMode mode = true  // the decoded vector replaces the elements
)

// begin prepares dst for the addition of a vector that has been checked.
func begin[T float](m mode, dst []T) {
	if m == storeMode {
		clear(dst)
	}
}

// decodeTyped implements AddTyped and DecodeTyped by a function for each floating-point type.
func (k kind) decodeTyped(m mode, dst []byte, t device.Type, encoded []byte, decode32 func(mode, []float32, []byte) error, decode64 func(mode, []float64, []byte) error) error {
	switch t {
	case device.Float32:
		return decode32(m, vector[float32](dst), encoded)
	case device.Float64:
		return decode64(m, vector[float64](dst), encoded)
	}
	return typeError(k.String(), t)
}
