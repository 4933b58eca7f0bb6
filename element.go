package nexar

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"unsafe"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
)

// Real contains the element types with an order. It includes named types, such as
// "type Weight float32", which are reduced as their underlying type; int and uint have 64
// bits on the wire, and cannot be reduced on platforms where they have 32.
//
// A named type of 16 bits other than [Float16] and [BFloat16] may be an integer or a
// floating-point format of another package, so reductions of it fail with
// [ErrInvalidType]. Use [View] to give the element type. A named type of 8 bits other than
// [Float8E4M3] and [Float8E5M2] is an integer.
type Real interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64
}

// Number contains the element types that collectives reduce. Complex numbers have [Sum],
// [Prod] and [Avg] only.
type Number interface {
	Real | ~complex64 | ~complex128
}

// View returns s as a slice of another type with as many bits, which shares the memory of s. With View a program
// can reduce vectors of a floating-point type of 16 or 8 bits of another package:
//
//	err := nexar.AllReduce(ctx, c, nexar.View[nexar.BFloat16](gradient), nexar.Sum)
//
// It panics if one type has 8 bits and the other 16.
func View[To, From ~int8 | ~uint8 | ~int16 | ~uint16](s []From) []To {
	if to, from := reflect.TypeFor[To](), reflect.TypeFor[From](); to.Size() != from.Size() {
		panic(fmt.Sprintf("nexar: View of []%v as []%v: the elements have %d and %d bits, and must have as many", from, to, from.Bits(), to.Bits()))
	}
	return unsafe.Slice((*To)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// Float16 is an IEEE 754 half-precision number: 1 bit of sign, 5 of exponent, 10 of
// fraction. Its integer value is the bit pattern; see [ToFloat16].
type Float16 uint16

// ToFloat16 rounds f to the nearest Float16, ties to even. Values that are too large
// become infinite.
func ToFloat16(f float32) Float16 { return Float16(kernel.F32ToF16(f)) }

// Float32 returns the value of f, without rounding.
func (f Float16) Float32() float32 { return kernel.F16ToF32(uint16(f)) }

// String formats the value of f.
func (f Float16) String() string { return strconv.FormatFloat(float64(f.Float32()), 'g', -1, 32) }

// BFloat16 is a bfloat16 number: 1 bit of sign, 8 of exponent, 7 of fraction. Its integer
// value is the bit pattern; see [ToBFloat16].
type BFloat16 uint16

// ToBFloat16 rounds f to the nearest BFloat16, ties to even.
func ToBFloat16(f float32) BFloat16 { return BFloat16(kernel.F32ToBF16(f)) }

// Float32 returns the value of f, without rounding.
func (f BFloat16) Float32() float32 { return kernel.BF16ToF32(uint16(f)) }

// String formats the value of f.
func (f BFloat16) String() string { return strconv.FormatFloat(float64(f.Float32()), 'g', -1, 32) }

// Float8E4M3 is an 8-bit floating-point number of the format E4M3 of OFP8, the specification of the Open Compute
// Project: 1 bit of sign, 4 of exponent, 3 of fraction. It has no infinities, and numbers up to 448. Its integer value is the
// bit pattern; see [ToFloat8E4M3].
type Float8E4M3 uint8

// ToFloat8E4M3 rounds f to the nearest Float8E4M3, ties to even. It saturates, as conversions of NVIDIA's GPUs do
// (__NV_SATFINITE): values that are too large, and infinities, become ±448.
func ToFloat8E4M3(f float32) Float8E4M3 { return Float8E4M3(kernel.F32ToF8(kernel.Float8E4M3, f)) }

// Float32 returns the value of f, without rounding.
func (f Float8E4M3) Float32() float32 { return kernel.F8ToF32(kernel.Float8E4M3, uint8(f)) }

// String formats the value of f.
func (f Float8E4M3) String() string { return strconv.FormatFloat(float64(f.Float32()), 'g', -1, 32) }

// Float8E5M2 is an 8-bit floating-point number of the format E5M2 of OFP8: 1 bit of sign, 5 of exponent, 2 of
// fraction. It has numbers up to 57344. Its integer value is the bit pattern; see [ToFloat8E5M2].
type Float8E5M2 uint8

// ToFloat8E5M2 rounds f to the nearest Float8E5M2, ties to even. It saturates like [ToFloat8E4M3], at ±57344.
func ToFloat8E5M2(f float32) Float8E5M2 { return Float8E5M2(kernel.F32ToF8(kernel.Float8E5M2, f)) }

// Float32 returns the value of f, without rounding.
func (f Float8E5M2) Float32() float32 { return kernel.F8ToF32(kernel.Float8E5M2, uint8(f)) }

// String formats the value of f.
func (f Float8E5M2) String() string { return strconv.FormatFloat(float64(f.Float32()), 'g', -1, 32) }

// numberOf returns the type of elements as which T is reduced; ok is false for a type that
// numbersOfKinds has, which takes twice the time.
func numberOf[T any]() (t kernel.Type, ok bool) {
	var p *T
	switch any(p).(type) {
	case *float32:
		return kernel.Float32, true
	case *float64:
		return kernel.Float64, true
	case *Float16:
		return kernel.Float16, true
	case *BFloat16:
		return kernel.BFloat16, true
	case *Float8E4M3:
		return kernel.Float8E4M3, true
	case *Float8E5M2:
		return kernel.Float8E5M2, true
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
	case *int:
		return kernel.Int64, strconv.IntSize == 64
	case *uint:
		return kernel.Uint64, strconv.IntSize == 64
	case *complex64:
		return kernel.Complex64, true
	case *complex128:
		return kernel.Complex128, true
	}
	return 0, false
}

// numbersOfKinds has the types of elements of named types, by kind. Those of 16 bits are missing, as they may be integers or
// floating-point numbers, and so are int and uint of 32 bits.
var numbersOfKinds = [...]kernel.Type{
	reflect.Int8: kernel.Int8, reflect.Int32: kernel.Int32, reflect.Int64: kernel.Int64, reflect.Int: kernel.Int64 * (strconv.IntSize / 64),
	reflect.Uint8: kernel.Uint8, reflect.Uint32: kernel.Uint32, reflect.Uint64: kernel.Uint64, reflect.Uint: kernel.Uint64 * (strconv.IntSize / 64),
	reflect.Float32: kernel.Float32, reflect.Float64: kernel.Float64, reflect.Complex64: kernel.Complex64, reflect.Complex128: kernel.Complex128,
}

// bytesOf returns the memory of s.
func bytesOf[T any](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// An Op combines the elements of vectors.
type Op uint8

const (
	// Sum adds. Integers wrap around; Float16, BFloat16, Float8E4M3 and Float8E5M2 are
	// rounded after every addition, and the last two saturate: a sum that is too large, also of
	// an infinity, is the largest number of its sign.
	Sum = Op(kernel.Sum)
	// Prod multiplies, and rounds like Sum.
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

// String returns the name of the op, such as "sum".
func (o Op) String() string { return kernel.Op(o).String() }

// The terms of package collective for calls and their vectors.
type (
	task     = collective.Task
	elements = collective.Elements
	element  = collective.Element
)

// elementsOf describes a vector of elements without pointers.
func elementsOf[T any](s []T) elements {
	of, err := elementOf[T]()
	e := elements{At: (*byte)(unsafe.Pointer(unsafe.SliceData(s))), N: len(s), Of: of}
	if err != nil {
		bad := err
		e.Bad = &bad
	}
	return e
}

// numbersOf is elementsOf for vectors that an Op reduces.
func numbersOf[T Number](s []T) elements {
	e := elementsOf(s)
	if e.Of.Type == collective.Opaque {
		t := reflect.TypeFor[T]()
		err := fmt.Errorf("%w: %v has %d bits on this platform: use int64 or uint64", ErrInvalidType, t, t.Bits())
		if t.Bits() == 16 {
			err = fmt.Errorf("%w: %v may be an integer or a float: convert the vector by nexar.View[nexar.BFloat16], nexar.View[nexar.Float16] or nexar.View[%v]",
				ErrInvalidType, t, t.Kind())
		}
		e.Bad = &err
	}
	return e
}

// elementOf describes the elements of type T.
func elementOf[T any]() (element, error) {
	if t, ok := numberOf[T](); ok {
		return element{Type: uint8(t), Size: uint32(unsafe.Sizeof(*new(T)))}, nil
	}
	t := reflect.TypeOf((*T)(nil)).Elem() // TypeFor would box a T.
	if k := t.Kind(); int(k) < len(numbersOfKinds) && numbersOfKinds[k] != 0 {
		return element{Type: uint8(numbersOfKinds[k]), Size: uint32(unsafe.Sizeof(*new(T)))}, nil
	}
	return opaqueElement(t)
}

// opaqueElement describes the elements of a type that is not reduced as a number.
func opaqueElement(t reflect.Type) (element, error) {
	switch {
	case t.Size() == 0:
		return element{}, fmt.Errorf("%w: %v has no bytes to send: use elements of type byte", ErrInvalidType, t)
	case !kernel.Plain(t):
		return element{}, fmt.Errorf("%w: %v contains pointers or uintptrs, which have no meaning in another process: use package objects, which encodes values", ErrInvalidType, t)
	case t.Size() > math.MaxUint32:
		return element{}, fmt.Errorf("%w: %v has more than %d bytes", ErrInvalidType, t, uint32(math.MaxUint32))
	}
	return element{Type: collective.Opaque, Size: uint32(t.Size())}, nil
}
