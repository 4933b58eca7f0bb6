package conformance

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A kind is an element type. The tests compute with its bit patterns, 64-bit integers and
// float64, independently of the kernel.
type kind struct {
	typ       kernel.Type
	signed    bool
	digits    int // of the significand of a float; 0 for integers
	toFloat   func(bits uint64) float64
	fromFloat func(f float64) uint64
	try       func(ctx context.Context, c *nexar.Comm, tr trial) (end func() (result []byte, err error))
}

func kinds() []*kind {
	f32 := func(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) }
	toF32 := func(f float64) uint64 { return uint64(math.Float32bits(float32(f))) }
	f16 := func(b uint64) float64 { return float64(nexar.Float16(b).Float32()) }
	toF16 := func(f float64) uint64 { return uint64(nexar.ToFloat16(float32(f))) }
	bf16 := func(b uint64) float64 { return float64(nexar.BFloat16(b).Float32()) }
	toBF16 := func(f float64) uint64 { return uint64(nexar.ToBFloat16(float32(f))) }
	e4m3 := func(b uint64) float64 { return float64(nexar.Float8E4M3(b).Float32()) }
	toE4M3 := func(f float64) uint64 { return uint64(nexar.ToFloat8E4M3(float32(f))) }
	e5m2 := func(b uint64) float64 { return float64(nexar.Float8E5M2(b).Float32()) }
	toE5M2 := func(f float64) uint64 {
		if math.IsInf(f, 0) { // the identities of min and max, which do not saturate
			return uint64(nexar.ToFloat8E5M2(float32(f))) + 1
		}
		return uint64(nexar.ToFloat8E5M2(float32(f)))
	}
	return []*kind{
		{typ: kernel.Int8, signed: true, try: try[int8]},
		{typ: kernel.Int16, signed: true, try: try[int16]},
		{typ: kernel.Int32, signed: true, try: try[int32]},
		{typ: kernel.Int64, signed: true, try: try[int64]},
		{typ: kernel.Uint8, try: try[uint8]},
		{typ: kernel.Uint16, try: try[uint16]},
		{typ: kernel.Uint32, try: try[uint32]},
		{typ: kernel.Uint64, try: try[uint64]},
		{typ: kernel.Float32, digits: 24, toFloat: f32, fromFloat: toF32, try: try[float32]},
		{typ: kernel.Float64, digits: 53, toFloat: math.Float64frombits, fromFloat: math.Float64bits, try: try[float64]},
		{typ: kernel.Float16, digits: 11, toFloat: f16, fromFloat: toF16, try: try[nexar.Float16]},
		{typ: kernel.BFloat16, digits: 8, toFloat: bf16, fromFloat: toBF16, try: try[nexar.BFloat16]},
		{typ: kernel.Float8E4M3, digits: 4, toFloat: e4m3, fromFloat: toE4M3, try: try[nexar.Float8E4M3]},
		{typ: kernel.Float8E5M2, digits: 3, toFloat: e5m2, fromFloat: toE5M2, try: try[nexar.Float8E5M2]},
	}
}

// bits returns the size of an element in bits.
func (k *kind) bits() int { return 8 * k.typ.Size() }

func (k *kind) isFloat() bool { return k.digits > 0 }

// extended returns the integer with these bits, extended to 64 bits.
func (k *kind) extended(bits uint64) int64 {
	unused := 64 - k.bits()
	if k.signed {
		return int64(bits<<unused) >> unused
	}
	return int64(bits << unused >> unused)
}

// A flavour is a set of values for vectors.
type flavour int

const (
	// exact values can be combined in any order without rounding.
	exact flavour = iota
	// rounded values have all digits of a float, so that sums of them are rounded.
	rounded
	// special values are infinities, zeros and NaNs.
	special
	flavours
)

func (f flavour) String() string {
	return [...]string{exact: "exact", rounded: "rounded", special: "special"}[f]
}

// valuesMax is the number of different values in a vector. It is prime.
const valuesMax = 251

// values returns the values of a flavour, as bits. Integers use all bits in all flavours.
func (k *kind) values(op nexar.Op, f flavour) []uint64 {
	v := make([]uint64, valuesMax)
	for i := range v {
		h := worldtest.Mix(uint64(i) + 77)
		if !k.isFloat() {
			v[i] = h >> (64 - k.bits())
			continue
		}
		x := floatValue(h, op, f)
		if k.bits() == 8 && f != rounded && op != nexar.Min && op != nexar.Max {
			x = k.shortValue(h, op, x)
		}
		v[i] = k.fromFloat(x)
	}
	return v
}

// shortValue returns a value instead of x whose sums and products with few others are exact: there are integers up to 16 of 4
// digits, and up to 8 of 3. Infinities would saturate.
func (k *kind) shortValue(h uint64, op nexar.Op, x float64) float64 {
	switch {
	case x != x || x == 0:
		return x
	case math.IsInf(x, 0) || op != nexar.Prod && k.digits < 4 && h>>32%16 > 0:
		return 0
	}
	return math.Copysign(1, x)
}

// floatValue makes a float of random bits.
func floatValue(h uint64, op nexar.Op, f flavour) float64 {
	sign := 1 - 2*float64(h&1)
	h >>= 1
	switch {
	case f == special && h%7 < 4:
		return [...]float64{math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.NaN()}[h%7]
	case f == rounded || op == nexar.Min || op == nexar.Max:
		return sign * (0.75 + float64(h>>11)/(1<<53))
	case op == nexar.Prod:
		return sign * [...]float64{1, 2, 0.5, 1, 1}[h%5]
	}
	// The sum of 16 of them has the 8 digits of the shortest float.
	return sign * float64(h%16)
}

// pick returns the index of the value of a rank at position i.
func pick(rank, i int) int {
	h := uint32(i)*2654435761 + uint32(rank+1)*0x85ebca6b
	h ^= h >> 15
	h *= 0x2c1b3c6d
	h ^= h >> 13
	return int(uint64(h) * valuesMax >> 32)
}

// fill makes dst the vector of a rank from position at on.
//
//go:norace
func fill[T nexar.Number](dst []T, values []uint64, rank, at int) {
	var table [valuesMax]T
	for i, v := range values {
		table[i] = fromBits[T](v)
	}
	for i := range dst {
		dst[i] = table[pick(rank, at+i)]
	}
}

// toBits returns the bit pattern of x; fromBits is its inverse.
func toBits[T nexar.Number](x T) uint64 {
	p := unsafe.Pointer(&x)
	switch unsafe.Sizeof(x) {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	default:
		return *(*uint64)(p)
	}
}

func fromBits[T nexar.Number](bits uint64) (x T) {
	p := unsafe.Pointer(&x)
	switch unsafe.Sizeof(x) {
	case 1:
		*(*uint8)(p) = uint8(bits)
	case 2:
		*(*uint16)(p) = uint16(bits)
	case 4:
		*(*uint32)(p) = uint32(bits)
	default:
		*(*uint64)(p) = bits
	}
	return x
}

// A segment is an expected part of a result: positions at to at+n of the vectors of the
// ranks lo ≤ rank < hi, combined in order.
type segment struct {
	lo, hi int
	at, n  int
}

// verify compares a vector with the expected one.
func verify[T nexar.Number](tr trial, got []T, want []segment) error {
	o := newOracle(tr)
	pos := 0
	for _, s := range want {
		for i := range s.n {
			if g := toBits(got[pos+i]); !o.right(g, s, s.at+i) {
				return fmt.Errorf("element %d of %d is %v (%#x), want %s", pos+i, len(got), got[pos+i], g, o.explain(s, s.at+i))
			}
		}
		pos += s.n
	}
	if pos != len(got) {
		panic("the test expects another length")
	}
	return nil
}

// guardBand is the number of elements around a vector that must not change.
const guardBand = 5

// guardByte fills the guard bands.
const guardByte = 0xa5

// A guarded vector lies between two guard bands.
type guarded[T nexar.Number] struct {
	all []T
	v   []T
}

func newGuarded[T nexar.Number](n int) guarded[T] {
	g := guarded[T]{all: make([]T, n+2*guardBand)}
	g.v = g.all[guardBand : guardBand+n : guardBand+n]
	for _, band := range [][]T{g.all[:guardBand], g.all[guardBand+n:]} {
		for i, b := 0, bytesOf(band); i < len(b); i++ {
			b[i] = guardByte
		}
	}
	return g
}

func (g guarded[T]) check(name string) error {
	if g.all == nil {
		return nil
	}
	for _, band := range [][]T{g.all[:guardBand], g.all[len(g.all)-guardBand:]} {
		for _, b := range bytesOf(band) {
			if b != guardByte {
				return fmt.Errorf("memory around %s was written", name)
			}
		}
	}
	return nil
}
