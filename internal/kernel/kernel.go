// Package kernel reduces vectors element by element and converts them between floating-point
// formats. Vectors are bytes, in the byte order of the machine.
//
// Most callers call [Reducer] once for a data type and an operation, and apply the function to
// every piece of a vector:
//
//	add := kernel.Reducer(kernel.Float32, kernel.Sum)
//	add(acc, acc, piece)
//
// The bits of a result depend on the two elements alone: not on the length or the alignment of
// the slices, the position in them, or whether dst is a or b. Every operation is commutative
// bit for bit, and all processors agree. Therefore a floating-point NaN result is always the
// positive quiet NaN without payload, or 0x7f of the 8-bit types. Float16 and BFloat16 results are
// rounded correctly, once, to nearest even, and so are Float8E4M3 and Float8E5M2 results, which
// saturate. Complex elements are reduced as pairs of floats, and every step of a product
// is rounded.
//
// [Divider] turns a sum into an average.
//
// A slice of the wrong length and a dst that overlaps an operand without being it are bugs of
// the caller and panic. Any alignment is valid. Functions on vectors do not allocate, except
// that on machines without vector instructions the first use of Float16 builds a table of 256
// KiB, and that the first use of each operation on an 8-bit type builds one of 64 KiB. All functions may be called concurrently.
package kernel

import "github.com/nexar-go/nexar/device"

//go:generate go run -C _asm ./amd64 ..
//go:generate go run -C _asm ./arm64 ..

// A Type is the type of the elements of a vector. Package device has the table.
type Type = device.Type

// The types.
const (
	Int8     = device.Int8
	Int16    = device.Int16
	Int32    = device.Int32
	Int64    = device.Int64
	Uint8    = device.Uint8
	Uint16   = device.Uint16
	Uint32   = device.Uint32
	Uint64   = device.Uint64
	Float32  = device.Float32
	Float64  = device.Float64
	Float16  = device.Float16
	BFloat16 = device.BFloat16

	Complex64  = device.Complex64
	Complex128 = device.Complex128

	Float8E4M3 = device.Float8E4M3
	Float8E5M2 = device.Float8E5M2
)

// An Op is a reduction of two elements to one: a device.Op, or Avg.
type Op uint8

// The operations. Integer sums and products wrap around. Min and Max order -0 before +0, and
// are NaN if either element is NaN, like the builtins of Go.
const (
	Sum    = Op(device.Sum)
	Prod   = Op(device.Prod)
	Min    = Op(device.Min)
	Max    = Op(device.Max)
	Avg    = Max + 1 // reduces like Sum; a Divider completes it
	BitAnd = Op(device.BitAnd)
	BitOr  = Op(device.BitOr)
	BitXor = Op(device.BitXor)
)

// String returns the name of the operation in settings, such as "sum".
func (o Op) String() string {
	if o == Avg {
		return "avg"
	}
	return device.Op(o).String()
}
