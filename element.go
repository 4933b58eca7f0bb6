package nexar

import (
	"strconv"
	"unsafe"

	"github.com/nexar-go/nexar/internal/kernel"
)

// Number is the element types of vectors.
type Number interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 |
		float32 | float64 | Float16 | BFloat16
}

// Float16 is a number in the IEEE 754 half-precision format: 1 bit of sign, 5
// of exponent, 10 of fraction. Its value is the bit pattern.
type Float16 uint16

// ToFloat16 rounds f to the nearest Float16, ties to even. Values that are too large
// become infinite.
func ToFloat16(f float32) Float16 { return Float16(kernel.F32ToF16(f)) }

// Float32 is the value of f, exactly.
func (f Float16) Float32() float32 { return kernel.F16ToF32(uint16(f)) }

// String formats the value of f.
func (f Float16) String() string { return strconv.FormatFloat(float64(f.Float32()), 'g', -1, 32) }

// BFloat16 is a number in the bfloat16 format: 1 bit of sign, 8 of exponent, 7
// of fraction. Its value is the bit pattern.
type BFloat16 uint16

// ToBFloat16 rounds f to the nearest BFloat16, ties to even.
func ToBFloat16(f float32) BFloat16 { return BFloat16(kernel.F32ToBF16(f)) }

// Float32 is the value of f, exactly.
func (f BFloat16) Float32() float32 { return kernel.BF16ToF32(uint16(f)) }

// String formats the value of f.
func (f BFloat16) String() string { return strconv.FormatFloat(float64(f.Float32()), 'g', -1, 32) }

// numberOf is the kernel's name for T, if T is a Number.
func numberOf[T any]() (t kernel.Type, ok bool) {
	var p *T
	switch any(p).(type) {
	case *int8:
		return kernel.Int8, true
	case *int16:
		return kernel.Int16, true
	case *int32:
		return kernel.Int32, true
	case *int64:
		return kernel.Int64, true
	case *uint8:
		return kernel.Uint8, true
	case *uint16:
		return kernel.Uint16, true
	case *uint32:
		return kernel.Uint32, true
	case *uint64:
		return kernel.Uint64, true
	case *float32:
		return kernel.Float32, true
	case *float64:
		return kernel.Float64, true
	case *Float16:
		return kernel.Float16, true
	case *BFloat16:
		return kernel.BFloat16, true
	}
	return 0, false
}

// bytesOf is the memory of s.
func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// An Op combines the elements of vectors.
type Op uint8

const (
	// Sum adds. Integers wrap around; Float16 and BFloat16 are rounded after
	// every addition.
	Sum = Op(kernel.Sum)
	// Prod multiplies.
	Prod = Op(kernel.Prod)
	// Min takes the smaller one, as Go's min does: NaN wins, and -0 < +0.
	Min = Op(kernel.Min)
	// Max takes the larger one, as Go's max does: NaN wins, and -0 < +0.
	Max = Op(kernel.Max)
	// Avg is Sum divided by the number of vectors.
	// Integers are truncated toward zero.
	Avg = Op(kernel.Avg)
	// BitAnd, BitOr and BitXor combine the bits of integers.
	BitAnd = Op(kernel.BitAnd)
	BitOr  = Op(kernel.BitOr)
	BitXor = Op(kernel.BitXor)
)

// String is the name of the op: "sum".
func (o Op) String() string { return kernel.Op(o).String() }
