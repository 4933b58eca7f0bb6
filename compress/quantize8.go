package compress

import (
	"fmt"
	"math"
	"slices"

	"github.com/nexar-go/nexar/device"
)

// Quantize8 rounds each element to one of 253 multiples of a step, from -126 to 126, and
// encodes it in 8 bits. Each block of elements has its own step, 1/126 of the largest finite
// magnitude in the block, so that a large element affects its block alone (Dettmers, "8-Bit
// Approximations for Parallelism in Deep Learning", ICLR 2016; in blocks: Dettmers et al.,
// "8-bit Optimizers via Block-wise Quantization", ICLR 2022). The zero value has blocks of
// 256 elements. A Quantize8 has no state and may be shared.
//
// The error of a finite element is at most 1/251 of the largest finite magnitude in its block,
// plus 2^-150 for subnormal float32 and 2^-1075 for subnormal float64 numbers; the largest
// magnitude itself is exact. Rounding is to nearest even. Infinities and NaNs are kept, and do
// not affect the other elements of their block. Negative zero loses its sign.
type Quantize8 struct {
	// Block is the number of elements with a common step, 256 by default. Each block adds
	// one element, its largest magnitude, to the encoding.
	Block int
}

const (
	defaultBlock = 256

	// levels is the code of the largest finite magnitude. Codes beyond levels and -levels
	// encode infinities and NaN.
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

// Append appends the encoding of src to dst. A Block that is negative or exceeds 32 bits is
// an [ErrConfig]; there are no other errors.
func (q Quantize8) Append(dst []byte, src []float32) ([]byte, error) {
	return appendQuantize8(q, dst, src)
}

func (q Quantize8) append64(dst []byte, src []float64) ([]byte, error) {
	return appendQuantize8(q, dst, src)
}

func appendQuantize8[T float](q Quantize8, dst []byte, src []T) ([]byte, error) {
	block := q.block()
	if block < 0 || uint64(block) > math.MaxUint32 {
		return dst, fmt.Errorf("compress: quantize-8: %w: Block is %d, must be between 0 and %d", ErrConfig, block, uint32(math.MaxUint32))
	}
	dst = slices.Grow(dst, headerBytes+blockBytes(len(src), block, sizeOf[T]()))
	dst = header{kindQuantize8, typeOf[T](), uint32(block), len(src)}.append(dst)
	for len(src) > 0 {
		n := min(len(src), block)
		dst = appendBlock(dst, src[:n])
		src = src[n:]
	}
	return dst, nil
}

// appendBlock appends the largest finite magnitude of src, and the codes.
func appendBlock[T float](dst []byte, src []T) []byte {
	largest := uint64(0)
	for _, v := range src {
		largest = max(largest, magnitude(v))
	}
	finite := largest < infinity[T]()
	if !finite {
		largest = largestFinite(src)
	}
	size := sizeOf[T]()
	end := len(dst) + size + len(src)
	body := dst[len(dst):end]
	putFloat(body, fromBits[T](largest))
	s, codes := newScale(fromBits[T](largest)), body[size:]
	if finite {
		for i, v := range src {
			codes[i] = s.code(v)
		}
	} else {
		for i, v := range src {
			codes[i] = s.anyCode(v)
		}
	}
	return dst[:end]
}

// largestFinite returns the largest finite magnitude of src, or 0.
func largestFinite[T float](src []T) (largest uint64) {
	for _, v := range src {
		if m := magnitude(v); m < infinity[T]() {
			largest = max(largest, m)
		}
	}
	return largest
}

// A scale converts between the elements of a block and their codes.
type scale[T float] struct {
	largest float64 // the largest finite magnitude of the block
	step    float64 // of float32: largest/levels, which float64 represents without overflow
	inverse float64 // of float32: levels/largest, or 0
}

func newScale[T float](largest T) scale[T] {
	s := scale[T]{largest: float64(largest), step: float64(largest) / levels}
	if largest > 0 {
		s.inverse = levels / s.largest
	}
	return s
}

// code returns the number of steps in v, which is finite, as an int8.
func (s scale[T]) code(v T) byte {
	// Near 3<<51 adjacent floats differ by 1, so the addition rounds to an integer, in the
	// lowest bits. The conversion prevents a fused multiplication and addition.
	const unit1 = 3 << 51
	steps := float64(float64(v) * s.inverse)
	if sizeOf[T]() == 8 && s.largest > 0 {
		steps = float64(float64(v) / s.largest * levels) // the inverse of a subnormal overflows
	}
	return byte(math.Float64bits(steps + unit1))
}

// anyCode returns the code of any v.
func (s scale[T]) anyCode(v T) byte {
	switch m := magnitude(v); {
	case m < infinity[T]():
		return s.code(v)
	case m > infinity[T]():
		return 0x100 + codeNaN
	case v > 0:
		return codeInf
	}
	return 0x100 + codeMinus
}

// value returns the element of a code between -levels and levels.
func (s scale[T]) value(c byte) T {
	if sizeOf[T]() == 8 { // A step may be subnormal and thus inexact.
		return T(float64(float64(int8(c)) / levels * s.largest))
	}
	return T(float64(int8(c)) * s.step)
}

// special returns the element of a code beyond the levels.
func special[T float](c int8) T {
	switch c {
	case codeInf:
		return T(math.Inf(1))
	case codeMinus:
		return T(math.Inf(-1))
	}
	return nan[T]()
}

// AddTo adds an encoded vector, of the length of dst, to dst. The encoding contains the length
// of its blocks. An invalid encoding is a [*FormatError] and leaves dst unchanged.
func (Quantize8) AddTo(dst []float32, encoded []byte) error {
	return decodeQuantize8(addMode, dst, encoded)
}

func decodeQuantize8[T float](m mode, dst []T, encoded []byte) error {
	param, body, err := header{kind: kindQuantize8, typ: typeOf[T](), n: len(dst)}.cut(encoded)
	if err != nil {
		return err
	}
	if param == 0 {
		return kindQuantize8.malformed(paramOffset, "block length 0, must be positive")
	}
	block, size := int(min(uint64(param), uint64(max(len(dst), 1)))), sizeOf[T]()
	if err := checkBlocks[T](body, len(dst), block); err != nil {
		return err
	}
	begin(m, dst)
	for len(dst) > 0 {
		n := min(len(dst), block)
		addBlock(dst[:n], body[size:size+n], newScale(getFloat[T](body)))
		dst, body = dst[n:], body[size+n:]
	}
	return nil
}

// checkBlocks checks an encoding of n elements except for the codes, all of which are valid.
func checkBlocks[T float](body []byte, n, block int) error {
	size := sizeOf[T]()
	if err := kindQuantize8.checkBytes(body, blockBytes(n, block, size)); err != nil {
		return err
	}
	for at := 0; at < len(body); at += size + block {
		if getBits[T](body[at:]) >= infinity[T]() {
			return kindQuantize8.malformed(headerBytes+at, "the largest magnitude of a block is negative or not finite")
		}
	}
	return nil
}

func addBlock[T float](dst []T, codes []byte, s scale[T]) {
	dst = dst[:len(codes)]
	for i, c := range codes {
		v := s.value(c)
		if c+levels > 2*levels {
			v = special[T](int8(c))
		}
		dst[i] = add(dst[i], v)
	}
}

// blockBytes returns the number of bytes of n elements of a size in blocks, without the
// header.
func blockBytes(n, block, size int) int {
	if n == 0 {
		return 0
	}
	return n + size*((n-1)/block+1)
}

// MaxBytes returns the number of bytes that Append adds for n elements: 16, 1 for each, and 4
// for each block or part of a block.
func (q Quantize8) MaxBytes(n int) int { return q.MaxTypedBytes(device.Float32, n) }

// Allows implements [TypedCompressor]. It allows sums of float32 and float64.
func (Quantize8) Allows(t device.Type, op device.Op) bool { return allowsFloat(t, op) }

// AppendTyped implements [TypedCompressor].
func (q Quantize8) AppendTyped(dst []byte, t device.Type, src []byte) ([]byte, error) {
	return kindQuantize8.appendTyped(dst, t, src, q.Append, q.append64)
}

// DecodeTyped implements [TypedCompressor].
func (Quantize8) DecodeTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindQuantize8.decodeTyped(storeMode, dst, t, encoded, decodeQuantize8[float32], decodeQuantize8[float64])
}

// AddTyped implements [TypedCompressor].
func (Quantize8) AddTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindQuantize8.decodeTyped(addMode, dst, t, encoded, decodeQuantize8[float32], decodeQuantize8[float64])
}

// MaxTypedBytes implements [TypedCompressor]: 16 bytes, 1 for each element, and the size of an
// element for each block or part of a block.
func (q Quantize8) MaxTypedBytes(t device.Type, n int) int {
	return headerBytes + blockBytes(n, max(q.block(), 1), t.Size())
}

// String returns the kind of the encodings: "quantize-8".
func (Quantize8) String() string { return kindQuantize8.String() }
