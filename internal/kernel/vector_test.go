package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// The tests of reductions compare each implementation with the oracle. The tests below compare
// assembly with Go, which is fast enough to try every length and alignment.

// forEachVectorReducer runs f with each assembly reduction and its Go counterpart.
func forEachVectorReducer(t *testing.T, f func(t *testing.T, im implementation, typ Type, op Op, twin func(dst, a, b []byte))) {
	forEachReducer(t, func(t *testing.T, im implementation, typ Type, op Op) {
		if im.name != generic().name {
			f(t, im, typ, op, generic().reducer(typ, op))
		}
	})
}

// Lengths beyond the longest loop in assembly, which handles 256 bytes at a time, with all remainders.
func TestVectorLengths(t *testing.T) {
	forEachVectorReducer(t, func(t *testing.T, im implementation, typ Type, op Op, twin func(dst, a, b []byte)) {
		r := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		for bytes := 0; bytes < 450; bytes += typ.Size() {
			a, b, want := vectorOperands(r, typ, bytes, twin)
			checkReduce(t, im, typ, op, a, b, want, r.IntN(64), r.IntN(64), r.IntN(64))
		}
	})
}

func TestVectorAlignments(t *testing.T) {
	forEachVectorReducer(t, func(t *testing.T, im implementation, typ Type, op Op, twin func(dst, a, b []byte)) {
		r := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		for off := range 64 {
			a, b, want := vectorOperands(r, typ, (64+off)*8, twin)
			checkReduce(t, im, typ, op, a, b, want, off, r.IntN(64), r.IntN(64))
			checkReduce(t, im, typ, op, a, b, want, r.IntN(64), off, r.IntN(64))
			checkReduce(t, im, typ, op, a, b, want, r.IntN(64), r.IntN(64), off)
		}
	})
}

// vectorOperands returns two vectors of n bytes and the result.
func vectorOperands(r *rand.Rand, typ Type, n int, twin func(dst, a, b []byte)) (a, b, want []byte) {
	a, b, want = make([]byte, n), make([]byte, n), make([]byte, n)
	fillSpecial(r, typ, a, 3)
	fillSpecial(r, typ, b, 3)
	twin(want, a, b)
	return a, b, want
}

// Each 16-bit number is combined with every landmark and some other numbers, as the first and
// as the second operand.
func TestVectorHalvesExhaustively(t *testing.T) {
	const others = 4
	all, partner, want := make([]byte, 2<<16), make([]byte, 2<<16), make([]byte, 2<<16)
	for _, typ := range []Type{Float16, BFloat16} {
		r := rand.New(rand.NewPCG(uint64(typ), 3))
		for i := range 1 << 16 {
			setBits(typ, all, i, uint64(i))
		}
		partners := landmarks(typ)
		for range others {
			partners = append(partners, r.Uint64N(1<<16))
		}
		for _, op := range []Op{Sum, Prod, Min, Max} {
			for _, p := range partners {
				setBits(typ, partner, 0, p)
				for n := 2; n < len(partner); n *= 2 {
					copy(partner[n:], partner[:n])
				}
				inGo().reducers[typ][op](want, all, partner)
				for _, im := range implementations()[1:] {
					if im.has && im.reducer(typ, op) != nil { // otherwise TestVectorLengths reports it
						checkWhole(t, im, typ, op, all, partner, want)
						checkWhole(t, im, typ, op, partner, all, want)
					}
				}
			}
		}
	}
}

func checkWhole(t *testing.T, im implementation, typ Type, op Op, a, b, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	im.reducer(typ, op)(got, a, b)
	if !bytes.Equal(got, want) {
		i := firstDifference(typ, got, want)
		t.Fatalf("%s %v %v: %#04x op %#04x = %#04x, want %#04x", im.name, typ, op,
			bitsOf(typ, a, i), bitsOf(typ, b, i), bitsOf(typ, got, i), bitsOf(typ, want, i))
	}
}
