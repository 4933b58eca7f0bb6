// Package ptxtest has the operands for tests of kernels, in the interpreter and on a GPU.
package ptxtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/nexar-go/nexar/device"
)

// Types returns all types of elements.
func Types() (list []device.Type) {
	for t := device.Int8; t <= device.Float8E5M2; t++ {
		list = append(list, t)
	}
	return list
}

// patterns returns the patterns of elements, or of parts of complex elements, at the limits of a type.
func patterns(t device.Type) []uint64 {
	float := func(exponent, mantissa int) (list []uint64) {
		one, all := uint64(1)<<(exponent-1)-1, uint64(1)<<exponent-1
		for _, b := range []uint64{
			0, 1, 2, 1<<mantissa - 1, 1 << mantissa, 1<<mantissa + 1, one << mantissa, one<<mantissa + 1, (one - 1) << mantissa,
			(one+1)<<mantissa - 1, (one + uint64(mantissa)) << mantissa, (one+uint64(mantissa)+1)<<mantissa + 1,
			(all-1)<<mantissa + 1<<(mantissa-1), all<<mantissa - 1, all << mantissa, all<<mantissa + 1, all<<mantissa + 1<<(mantissa-1) + 5,
		} {
			list = append(list, b, b|1<<(exponent+mantissa))
		}
		return list
	}
	switch t {
	case device.Float32, device.Complex64:
		return float(8, 23)
	case device.Float64, device.Complex128:
		return float(11, 52)
	case device.Float16:
		return float(5, 10)
	case device.BFloat16:
		return float(8, 7)
	case device.Float8E4M3:
		return float(4, 3)
	case device.Float8E5M2:
		return float(5, 2)
	}
	top := uint64(1) << (8*t.Size() - 1)
	return []uint64{0, 1, 2, 3, 7, math.MaxUint64, math.MaxUint64 - 1, math.MaxUint64 - 6, top, top - 1, top + 1, 0x55}
}

// Operands returns two vectors of the same length, a multiple of 16 bytes: all pairs of values at the limits of
// a type, and random ones, of any bits and of similar magnitude.
func Operands(t device.Type, rng *rand.Rand) (a, b []byte) {
	size := t.Size()
	if t.Complex() {
		size /= 2
	}
	put := func(p []byte, v uint64) []byte {
		return append(p, binary.NativeEndian.AppendUint64(nil, v)[:size]...)
	}
	list := patterns(t)
	for _, x := range list {
		for _, y := range list {
			a, b = put(a, x), put(b, y)
		}
	}
	for range 4000 {
		x, y := rng.Uint64(), rng.Uint64()
		a, b = put(a, x), put(b, y)
		a, b = put(a, x), put(b, x^y>>40&^(1<<(8*size-1)))
	}
	if t == device.Complex64 || t == device.Complex128 {
		// Every pattern meets every other one as a real and as an imaginary part.
		for range 4000 {
			for range 2 {
				a, b = put(a, list[rng.IntN(len(list))]), put(b, list[rng.IntN(len(list))])
			}
		}
	}
	n := len(a) / 16 * 16
	return a[:n], b[:n]
}

// Compare fails a test with the first elements that are not those wanted.
func Compare(tb testing.TB, name string, t device.Type, got, want []byte) {
	tb.Helper()
	if bytes.Equal(got, want) {
		return
	}
	if len(got) != len(want) {
		tb.Errorf("%s: %d bytes, want %d", name, len(got), len(want))
		return
	}
	size := t.Size()
	bad := 0
	for i := 0; i < len(want); i += size {
		if !bytes.Equal(got[i:i+size], want[i:i+size]) {
			if bad++; bad < 4 {
				tb.Errorf("%s: element %d is %x, want %x (least byte first)", name, i/size, got[i:i+size], want[i:i+size])
			}
		}
	}
	tb.Errorf("%s: %d of %d elements are wrong", name, bad, len(want)/size)
}
