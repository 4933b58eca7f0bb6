package compress

import "github.com/nexar-go/nexar/device"

// A TypedCompressor is a [Compressor] that also encodes vectors of elements of other types
// than float32, without rounding them to float32, and vectors that are reduced by other
// operations than a sum.
//
// A compressed all-reduce calls Allows, with Sum for an average, if the vector is not of
// floating-point numbers, if it is of float64, or if the operation is not Sum. If Allows
// reports true it calls AppendTyped once and then DecodeTyped once for each rank, in the
// order of ranks, and combines the results itself; otherwise it uses the methods of
// Compressor, for sums of floating-point numbers, or fails. A type that embeds a
// TypedCompressor and replaces methods of Compressor must replace these as well.
type TypedCompressor interface {
	Compressor

	// Allows reports whether vectors of elements of type t can be reduced by op. The
	// result is the same on all ranks whose String is the same.
	Allows(t device.Type, op device.Op) bool

	// AppendTyped appends the encoding of the elements in src, which has the byte order of
	// the host, to dst and returns the extended slice. src is neither changed nor kept. With
	// an error dst is returned as it was.
	AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error)

	// DecodeTyped stores the vector of an encoding in dst, which has the length of the
	// encoded vector. As in AddTo, an invalid encoding is an ErrFormat, and dst stays as it
	// was then.
	DecodeTyped(dst []byte, t device.Type, encoded []byte) error

	// MaxTypedBytes returns the largest number of bytes that AppendTyped adds for n
	// elements.
	MaxTypedBytes(t device.Type, n int) int
}

// typedParam is the parameter in the header of an encoding of elements of a type: it tells
// them from elements of float32 that Append has encoded, which have 0.
func typedParam(t device.Type) uint32 { return uint32(t) }
