package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Quantize8 replaces each element by one of 253 multiples of a step, positive
// and negative alike, in 8 bits. Each block of elements has a step of its own,
// 1/126 of the largest finite magnitude in it, so that a few large elements do
// not spoil all others (Dettmers, "8-Bit Approximations for Parallelism in Deep
// Learning", ICLR 2016; in blocks: Dettmers et al., "8-bit Optimizers via
// Block-wise Quantization", ICLR 2022). The zero value has blocks of 256. It
// has no state and may be shared.
//
// A finite element changes by at most 1/251 of the largest finite magnitude in
// its block, save for a further 2^-150 where numbers are subnormal; the largest
// itself does not change. Rounding is to the nearest, and to the even of two.
// Infinities and NaNs arrive as such and do not touch the other elements of
// their block. Negative zero loses its sign.
type Quantize8 struct {
	// Block is how many elements have a step in common, 256 by default. Each
	// block takes 4 bytes more.
	Block int
}

const (
	defaultBlock = 256

	// levels is the code of the largest finite magnitude. The codes beyond it,
	// and below its negative, are for what is not finite.
	levels    = 126
	codeInf   = 127
	codeMinus = -127 // of negative infinity
	codeNaN   = -128
)

func (q Quantize8) block() int {
	if q.Block == 0 {
		return defaultBlock
	}
	return q.Block
}

// Append appends the encoding of src to dst. It fails only for a Block that is
// negative or takes more than 32 bits, which is an ErrConfig.
func (q Quantize8) Append(dst []byte, src []float32) ([]byte, error) {
	block := q.block()
	if block < 0 || uint64(block) > math.MaxUint32 {
		return dst, fmt.Errorf("compress: quantize-8: %w: there are no blocks of %d elements", ErrConfig, block)
	}
	dst = slices.Grow(dst, q.MaxBytes(len(src)))
	dst = appendHeader(dst, kindQuantize8, uint32(block), len(src))
	for len(src) > 0 {
		n := min(len(src), block)
		dst = appendBlock(dst, src[:n])
		src = src[n:]
	}
	return dst, nil
}

// appendBlock appends the largest finite magnitude of src, and the codes.
func appendBlock(dst []byte, src []float32) []byte {
	largest := uint32(0)
	for _, v := range src {
		largest = max(largest, magnitude(v))
	}
	finite := largest < infinity32
	if !finite {
		largest = largestFinite(src)
	}
	dst = binary.LittleEndian.AppendUint32(dst, largest)
	// In float64 neither the inverse of a step nor a product overflows.
	inverse := float64(0)
	if largest > 0 {
		inverse = levels / float64(math.Float32frombits(largest))
	}
	end := len(dst) + len(src)
	codes := dst[len(dst):end]
	if finite {
		for i, v := range src {
			codes[i] = code(v, inverse)
		}
	} else {
		for i, v := range src {
			codes[i] = anyCode(v, inverse)
		}
	}
	return dst[:end]
}

// largestFinite is the largest finite magnitude of src.
func largestFinite(src []float32) (largest uint32) {
	for _, v := range src {
		if m := magnitude(v); m < infinity32 {
			largest = max(largest, m)
		}
	}
	return largest
}

// code is the number of steps in v, which is finite, as an int8.
func code(v float32, inverse float64) byte {
	// Floats as large as this one have a unit of 1. So the sum is rounded to
	// an integer, and that is in its lowest bits. The conversion keeps the
	// compiler from fusing the product with the addition.
	const unit1 = 3 << 51
	return byte(math.Float64bits(float64(float64(v)*inverse) + unit1))
}

func anyCode(v float32, inverse float64) byte {
	switch m := magnitude(v); {
	case m < infinity32:
		return code(v, inverse)
	case m > infinity32:
		return 0x100 + codeNaN
	case v > 0:
		return codeInf
	}
	return 0x100 + codeMinus
}

// AddTo adds the vector that encoded stands for to dst, which is of the same
// length. The encoding says how long its blocks are. What a Quantize8 has not
// made is a *FormatError and leaves dst as it was.
func (Quantize8) AddTo(dst []float32, encoded []byte) error {
	param, body, err := cutHeader(encoded, kindQuantize8, len(dst))
	if err != nil {
		return err
	}
	if param == 0 {
		return kindQuantize8.malformed(paramOffset, "blocks of no elements")
	}
	block := int(min(uint64(param), uint64(max(len(dst), 1))))
	if err := checkBlocks(body, len(dst), block); err != nil {
		return err
	}
	for len(dst) > 0 {
		n := min(len(dst), block)
		largest := math.Float32frombits(binary.LittleEndian.Uint32(body))
		addBlock(dst[:n], body[4:4+n], largest)
		dst, body = dst[n:], body[4+n:]
	}
	return nil
}

// checkBlocks checks all of an encoding of n elements but the codes, of which
// every one stands for something.
func checkBlocks(body []byte, n, block int) error {
	if err := kindQuantize8.checkBytes(body, blockBytes(n, block)); err != nil {
		return err
	}
	for at := 0; at < len(body); at += 4 + block {
		if binary.LittleEndian.Uint32(body[at:]) >= infinity32 {
			return kindQuantize8.malformed(headerBytes+at, "a largest magnitude that is negative or not finite")
		}
	}
	return nil
}

func addBlock(dst []float32, codes []byte, largest float32) {
	step := float64(largest) / levels
	dst = dst[:len(codes)]
	for i, c := range codes {
		v := float32(float64(int8(c)) * step)
		if c+levels > 2*levels {
			v = special(int8(c))
		}
		dst[i] = add(dst[i], v)
	}
}

// special is what a code beyond all levels stands for.
func special(c int8) float32 {
	switch c {
	case codeInf:
		return math.Float32frombits(infinity32)
	case codeMinus:
		return math.Float32frombits(infinity32 | signBit32)
	}
	return math.Float32frombits(nan32)
}

// blockBytes is how many bytes n elements take in blocks, without the header.
func blockBytes(n, block int) int {
	if n == 0 {
		return 0
	}
	return n + 4*((n-1)/block+1)
}

// MaxBytes is how many bytes Append adds for n elements: 16, 1 for each, and 4
// for each block that they begin.
func (q Quantize8) MaxBytes(n int) int { return headerBytes + blockBytes(n, max(q.block(), 1)) }

// String is the kind of the encodings: "quantize-8".
func (Quantize8) String() string { return kindQuantize8.String() }
