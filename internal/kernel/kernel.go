// Package kernel reduces vectors element by element and converts them between
// floating-point formats. Vectors are bytes, in the byte order of the machine.
//
// Most callers call Reducer once for a data type and an operation and then use
// the function it returns on every piece of a vector:
//
//	add := kernel.Reducer(kernel.Float32, kernel.Sum)
//	add(acc, acc, piece)
//
// The bits of a result depend on the two elements alone: not on the length or
// the alignment of the slices, on the position in them, or on whether dst is a
// or b. Every operation is commutative bit for bit, and machines of different
// kinds agree. To that end a floating-point result that is not a number is
// always the same one, the positive quiet NaN without payload. Float16 and
// BFloat16 results are rounded correctly, once, to nearest even.
//
// Fold does the same for any number of vectors at once, and Divider turns a sum
// into an average.
//
// A slice of the wrong length, and a dst that overlaps an operand without
// being it, are broken invariants and panic. Any alignment will do. No function
// that works on vectors allocates, save that on machines without vector
// instructions the first use of Float16 builds a table of 256 KiB. All
// functions may be called concurrently.
package kernel

//go:generate go run -C _asm ./amd64 ..
//go:generate go run -C _asm ./arm64 ..

// A Type is the type of the elements of a vector.
type Type uint8

// The types, with the numbers that go over the wire.
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
)

var typeSizes = [...]uint8{
	Int8: 1, Int16: 2, Int32: 4, Int64: 8, Uint8: 1, Uint16: 2, Uint32: 4, Uint64: 8,
	Float32: 4, Float64: 8, Float16: 2, BFloat16: 2,
}

var typeNames = [...]string{
	Int8: "int8", Int16: "int16", Int32: "int32", Int64: "int64",
	Uint8: "uint8", Uint16: "uint16", Uint32: "uint32", Uint64: "uint64",
	Float32: "float32", Float64: "float64", Float16: "float16", BFloat16: "bfloat16",
}

// Size is the size of an element in bytes, and 0 for what is not a Type.
func (t Type) Size() int {
	if int(t) < len(typeSizes) {
		return int(typeSizes[t])
	}
	return 0
}

// String is the name of the type as users write it: "float32".
func (t Type) String() string {
	if int(t) < len(typeNames) && t != 0 {
		return typeNames[t]
	}
	return "unknown"
}

// An Op is a reduction of two elements to one.
type Op uint8

// The operations, with the numbers that go over the wire. Integer sums and
// products wrap around. Min and Max order -0 before +0, and are NaN if either
// element is, like the builtins of Go.
const (
	Sum Op = iota + 1
	Prod
	Min
	Max
	Avg // reduces as Sum; a Divider finishes it
	BitAnd
	BitOr
	BitXor
)

var opNames = [...]string{
	Sum: "sum", Prod: "prod", Min: "min", Max: "max", Avg: "avg",
	BitAnd: "bit_and", BitOr: "bit_or", BitXor: "bit_xor",
}

// String is the name of the operation as users write it: "sum".
func (o Op) String() string {
	if int(o) < len(opNames) && o != 0 {
		return opNames[o]
	}
	return "unknown"
}
