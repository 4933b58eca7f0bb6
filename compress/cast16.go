package compress

import (
	"fmt"
	"math"
	"slices"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/kernel"
)

// A Format is a floating-point format of 16 bits.
type Format uint8

// The formats. Their values are part of the encoding.
const (
	// BFloat16 is the upper half of a float32 and has its range: 8 bits of exponent and 7
	// of fraction (Kalamkar et al., "A Study of BFLOAT16 for Deep Learning Training", 2019).
	BFloat16 Format = iota
	// Float16 is IEEE 754 binary16: 5 bits of exponent and 10 of fraction.
	Float16
)

// Cast16 rounds each element to a format of 16 bits, to nearest even (Micikevicius et al.,
// "Mixed Precision Training", ICLR 2018). Sums of float64 vectors are rounded once, and added
// in float64. The zero value rounds to BFloat16. A Cast16 has no state and may be shared.
//
// The relative error of an element is at most 2^-8 in BFloat16 and 2^-11 in Float16; the
// error of an element below the normal numbers of the format is at most 2^-134 and 2^-25.
// Magnitudes from 65520 become infinite in Float16, and those from 2^128 - 2^119 in BFloat16.
// Infinities and signed zeros are kept, and a NaN remains a NaN.
type Cast16 struct {
	Format Format
}

// cast16Block is the number of elements that are converted at a time, on the stack.
const cast16Block = 256

// Append appends the encoding of src to dst. An unknown Format is an [ErrConfig]; there are
// no other errors.
func (c Cast16) Append(dst []byte, src []float32) ([]byte, error) { return appendCast16(c, dst, src) }

func (c Cast16) append64(dst []byte, src []float64) ([]byte, error) { return appendCast16(c, dst, src) }

func appendCast16[T float](c Cast16, dst []byte, src []T) ([]byte, error) {
	if c.Format > Float16 {
		return dst, fmt.Errorf("compress: cast-16: %w: Format is %d, must be BFloat16 (0) or Float16 (1)", ErrConfig, c.Format)
	}
	dst = slices.Grow(dst, c.MaxBytes(len(src)))
	dst = header{kindCast16, typeOf[T](), uint32(c.Format), len(src)}.append(dst)
	var words [cast16Block]uint16
	var singles [cast16Block]float32
	for len(src) > 0 {
		n := min(len(src), cast16Block)
		if c.Format == BFloat16 {
			kernel.ConvertF32ToBF16(words[:n], narrow(singles[:n], src))
		} else {
			kernel.ConvertF32ToF16(words[:n], narrow(singles[:n], src))
		}
		dst = appendElements(dst, device.Uint16, memory(words[:n]))
		src = src[n:]
	}
	return dst, nil
}

// narrow returns the first elements of src as float32, in buffer unless they are float32. The
// rounding to odd makes a second rounding to 16 bits equal to a single one.
func narrow[T float](buffer []float32, src []T) []float32 {
	if sizeOf[T]() == 4 {
		return vector[float32](memory(src[:len(buffer)]))
	}
	for i := range buffer {
		buffer[i] = roundToOdd(float64(src[i]))
	}
	return buffer
}

// roundToOdd returns v if a float32 can represent it, and otherwise the neighbor of v with a
// lowest bit of 1 (Boldo and Melquiond, "Emulation of a FMA and
// Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd", IEEE Transactions on
// Computers 57(4), 2008).
func roundToOdd(v float64) float32 {
	f := float32(v)
	switch b := math.Float32bits(f); {
	case v != v:
		return nan[float32]()
	case float64(f) == v || b&1 == 1:
		return f
	case math.Abs(float64(f)) > math.Abs(v):
		return math.Float32frombits(b - 1)
	default:
		return math.Float32frombits(b + 1)
	}
}

// AddTo adds an encoded vector, of the length of dst, to dst. The encoding contains its
// Format. An invalid encoding is a [*FormatError] and leaves dst unchanged.
func (Cast16) AddTo(dst []float32, encoded []byte) error {
	return decodeCast16(addMode, dst, encoded)
}

func decodeCast16[T float](m mode, dst []T, encoded []byte) error {
	format, body, err := header{kind: kindCast16, typ: typeOf[T](), n: len(dst)}.cut(encoded)
	if err != nil {
		return err
	}
	if format > uint32(Float16) {
		return kindCast16.malformed(paramOffset, "unknown format %d", format)
	}
	if err := kindCast16.checkBytes(body, 2*len(dst)); err != nil {
		return err
	}
	begin(m, dst)
	var words [cast16Block]uint16
	var singles [cast16Block]float32
	var wide [cast16Block]T
	for len(dst) > 0 {
		n := min(len(dst), cast16Block)
		loadElements(memory(words[:n]), device.Uint16, body[:2*n])
		if Format(format) == BFloat16 {
			kernel.ConvertBF16ToF32(singles[:n], words[:n])
		} else {
			kernel.ConvertF16ToF32(singles[:n], words[:n])
		}
		addAll(dst[:n], widen(wide[:n], singles[:n]))
		dst, body = dst[n:], body[2*n:]
	}
	return nil
}

// widen returns src as elements of type T, in buffer unless T is float32.
func widen[T float](buffer []T, src []float32) []T {
	if sizeOf[T]() == 4 {
		return vector[T](memory(src))
	}
	for i, v := range src {
		buffer[i] = T(v)
	}
	return buffer
}

// MaxBytes returns the number of bytes that Append adds for n elements: 16, and 2 for each.
func (Cast16) MaxBytes(n int) int { return headerBytes + 2*n }

// Allows implements [TypedCompressor]. It allows sums of float32 and float64.
func (Cast16) Allows(t device.Type, op device.Op) bool { return allowsFloat(t, op) }

// AppendTyped implements [TypedCompressor].
func (c Cast16) AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error) {
	return kindCast16.appendTyped(dst, t, src, c.Append, c.append64)
}

// DecodeTyped implements [TypedCompressor].
func (Cast16) DecodeTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindCast16.decodeTyped(storeMode, dst, t, encoded, decodeCast16[float32], decodeCast16[float64])
}

// AddTyped implements [TypedCompressor].
func (Cast16) AddTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindCast16.decodeTyped(addMode, dst, t, encoded, decodeCast16[float32], decodeCast16[float64])
}

// MaxTypedBytes implements [TypedCompressor]. It returns MaxBytes(n) for all types.
func (c Cast16) MaxTypedBytes(_ device.Type, n int) int { return c.MaxBytes(n) }

// String returns the kind of the encodings: "cast-16".
func (Cast16) String() string { return kindCast16.String() }
