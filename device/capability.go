package device

import "fmt"

// A Mapper is a Device with memory that the host can access directly. Collectives and messages
// then use the memory in place.
type Mapper interface {
	Device

	// Map returns the memory of a buffer, always the same slice, for reading and writing. It
	// is valid until the buffer is freed.
	Map(b Buffer) ([]byte, error)
}

// A Reducer is a Stream that can reduce vectors in the memory of its device.
type Reducer interface {
	Stream

	// Reduce queues dst[i] = dst[i] op src[i] for all elements. As in Copy, both regions must
	// have equal row lengths and numbers of rows, and must not overlap. Offset, Bytes and, if
	// there are several rows, Stride must be multiples of the element size; otherwise Reduce
	// fails with a *RangeError. If op is not defined for t, it fails with ErrInvalidOp.
	//
	// The bits of the result depend on the two elements alone, and are the same on all
	// devices:
	//
	//   - Sums and products of integers wrap around. Those of floats are rounded once, to
	//     nearest even, without flushing subnormals.
	//   - Those of 8-bit floats saturate: results that are too large, and infinite ones, are the largest number of their sign.
	//   - Complex numbers are pairs of floats. In a product (a+bi)(c+di), the four products,
	//     ac-bd and ad+bc are each rounded.
	//   - Min and Max order -0 before +0, and are NaN if either element is.
	//   - A result that is NaN is the positive quiet NaN without payload, or 0x7F of 8-bit floats.
	Reduce(dst, src Region, t Type, op Op) error
}

// A Peer is a Device whose memory other devices of the host can access directly, also devices of other processes:
// a GPU reads the memory of another one. The ranks of a host can then exchange and reduce vectors without memory of
// the host.
type Peer interface {
	Device

	// Export returns a name of the memory of a buffer, for Attach of a device of the same kind. It is plain data of
	// 1 to 256 bytes, and may be sent to another process of the host. A buffer of 0 bytes is a *LengthError.
	//
	// Free every buffer that is attached to the name before this one. Otherwise the contents of
	// these are undefined.
	Export(b Buffer) (name []byte, err error)

	// Attach returns a buffer of this device with the memory of a name. Both buffers have the same
	// bytes. The work of two devices is not ordered except by Wait. Attach fails if the name is invalid or
	// of freed memory, or if the device cannot access the memory. Free ends the use of the
	// buffer; the memory remains with its owner.
	Attach(name []byte) (Buffer, error)
}

// A Type is the type of the elements of a vector, in the byte order of the host.
type Type uint8

// The types. Their values are part of the wire protocol.
const (
	Int8 Type = iota + 1
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float32
	Float64
	Float16  // IEEE 754 binary16
	BFloat16 // the upper half of a float32
	Complex64
	Complex128
	Float8E4M3 // E4M3 of OFP8, the 8-bit floating-point specification of the Open Compute Project
	Float8E5M2 // E5M2 of OFP8
)

var typeSizes = [...]int{
	Int8: 1, Int16: 2, Int32: 4, Int64: 8, Uint8: 1, Uint16: 2, Uint32: 4, Uint64: 8,
	Float32: 4, Float64: 8, Float16: 2, BFloat16: 2, Complex64: 8, Complex128: 16,
	Float8E4M3: 1, Float8E5M2: 1,
}

var typeNames = [...]string{
	Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64",
	Uint8: "uint8", Uint16: "uint16", Uint32: "uint32", Uint64: "uint64",
	Float32: "float32", Float64: "float64", Float16: "float16", BFloat16: "bfloat16",
	Complex64: "complex64", Complex128: "complex128", Float8E4M3: "float8_e4m3", Float8E5M2: "float8_e5m2",
}

// Size returns the size of an element in bytes, or 0 for an unknown type.
func (t Type) Size() int {
	if int(t) < len(typeSizes) {
		return typeSizes[t]
	}
	return 0
}

// String returns the name of the type: "float32".
func (t Type) String() string {
	if int(t) < len(typeNames) && t != 0 {
		return typeNames[t]
	}
	return "unknown"
}

// Float reports whether the elements are real floating-point numbers.
func (t Type) Float() bool {
	return t >= Float32 && t <= BFloat16 || t == Float8E4M3 || t == Float8E5M2
}

// Complex reports whether the elements are complex numbers.
func (t Type) Complex() bool { return t == Complex64 || t == Complex128 }

// An Op is an operation on two elements.
type Op uint8

// The operations. Their values are part of the wire protocol; 5 is the average, which is not an
// operation on two elements.
const (
	Sum    Op = 1
	Prod   Op = 2
	Min    Op = 3
	Max    Op = 4
	BitAnd Op = 6
	BitOr  Op = 7
	BitXor Op = 8
)

var opNames = [...]string{
	Sum: "sum", Prod: "prod", Min: "min", Max: "max",
	BitAnd: "bit_and", BitOr: "bit_or", BitXor: "bit_xor",
}

// String returns the name of the operation: "sum".
func (o Op) String() string {
	if int(o) < len(opNames) && opNames[o] != "" {
		return opNames[o]
	}
	return "unknown"
}

// Defined reports whether o is defined for elements of type t. Complex numbers have no Min and
// Max, and only integers have bit operations.
func (o Op) Defined(t Type) bool {
	switch o {
	case Sum, Prod:
		return t.Size() > 0
	case Min, Max:
		return t.Size() > 0 && !t.Complex()
	case BitAnd, BitOr, BitXor:
		return t >= Int8 && t <= Uint64
	}
	return false
}

// CheckReduce checks the arguments of Reduce. It returns ErrInvalidOp, an error of [CheckPair],
// or a *RangeError for a region that does not consist of complete elements.
func CheckReduce(d Device, dst, src Region, t Type, op Op) error {
	if !op.Defined(t) {
		return deviceError(d, fmt.Errorf("%w: %v of %v", ErrInvalidOp, op, t))
	}
	if err := CheckPair(d, dst, src); err != nil {
		return err
	}
	size := t.Size()
	for _, r := range []Region{dst, src} {
		if r.Offset%size != 0 || r.Bytes%size != 0 || r.RowCount() > 1 && r.Stride%size != 0 {
			return &RangeError{
				Device: d.Name(), What: "buffer", Offset: r.Offset, Bytes: r.Bytes,
				Rows: r.Rows, Stride: r.Stride, Size: r.Buffer.Len(), Multiple: size,
			}
		}
	}
	return nil
}
