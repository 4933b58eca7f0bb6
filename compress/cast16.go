package compress

import (
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/kernel"
)

// A Format is a floating-point format of 16 bits.
type Format uint8

// The formats, with the numbers that encodings have.
const (
	// BFloat16 is the upper half of a float32, which has its range: 8 bits of
	// exponent and 7 of fraction (Kalamkar et al., "A Study of BFLOAT16 for Deep
	// Learning Training", 2019).
	BFloat16 Format = iota
	// Float16 is IEEE 754 binary16: 5 bits of exponent and 10 of fraction.
	Float16
)

// Cast16 rounds each element to a format of 16 bits, to the nearest number and
// to the even one of two that are equally near (Micikevicius et al., "Mixed
// Precision Training", ICLR 2018). The zero value rounds to BFloat16. It has no
// state and may be shared.
//
// An element changes by at most 2^-8 of itself in BFloat16, and 2^-11 in
// Float16; those below the normal numbers of the format by at most 2^-134 and
// 2^-25. Float16 makes infinity of what is 65520 or more, and BFloat16 of what
// is 2^128 - 2^119 or more. Infinities and signed zeros stay what they are; a
// NaN stays one.
type Cast16 struct {
	Format Format
}

// halfBlock is how many elements are converted at a time. They stay on the
// stack.
const halfBlock = 256

// Append appends the encoding of src to dst. It fails only for an unknown
// Format, which is an ErrConfig.
func (c Cast16) Append(dst []byte, src []float32) ([]byte, error) {
	if c.Format > Float16 {
		return dst, fmt.Errorf("compress: cast-16: %w: there is no format %d", ErrConfig, c.Format)
	}
	dst = slices.Grow(dst, c.MaxBytes(len(src)))
	dst = appendHeader(dst, kindCast16, uint32(c.Format), len(src))
	var buffer [halfBlock]uint16
	for len(src) > 0 {
		n := min(len(src), halfBlock)
		halves := buffer[:n]
		if c.Format == BFloat16 {
			kernel.ConvertF32ToBF16(halves, src[:n])
		} else {
			kernel.ConvertF32ToF16(halves, src[:n])
		}
		dst = appendHalves(dst, halves)
		src = src[n:]
	}
	return dst, nil
}

// AddTo adds the vector that encoded stands for to dst, which is of the same
// length. The encoding says which Format it has. What a Cast16 has not made is
// a *FormatError and leaves dst as it was.
func (Cast16) AddTo(dst []float32, encoded []byte) error {
	format, body, err := cutHeader(encoded, kindCast16, len(dst))
	if err != nil {
		return err
	}
	if format > uint32(Float16) {
		return kindCast16.malformed(paramOffset, "there is no format %d", format)
	}
	if err := kindCast16.checkBytes(body, 2*len(dst)); err != nil {
		return err
	}
	var halfBuffer [halfBlock]uint16
	var buffer [halfBlock]float32
	for len(dst) > 0 {
		n := min(len(dst), halfBlock)
		halves, floats := halfBuffer[:n], buffer[:n]
		loadHalves(halves, body)
		if Format(format) == BFloat16 {
			kernel.ConvertBF16ToF32(floats, halves)
		} else {
			kernel.ConvertF16ToF32(floats, halves)
		}
		addAll(dst[:n], floats)
		dst, body = dst[n:], body[2*n:]
	}
	return nil
}

// MaxBytes is how many bytes Append adds for n elements: 16, and 2 for each.
func (Cast16) MaxBytes(n int) int { return headerBytes + 2*n }

// String is the kind of the encodings: "cast-16".
func (Cast16) String() string { return kindCast16.String() }
