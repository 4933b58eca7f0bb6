package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// float8s are the 8-bit formats, with the limits that the specification of OFP8 has in its table 1.
var float8s = []struct {
	typ                                                Type
	largest, leastNormal, largestSubnormal, least      float64
	largestBits, leastNormalBits, largestSubnormalBits uint8
	nans, infinities                                   int
	beyond                                             float64 // the number that would come after the largest one
}{
	{Float8E4M3, 448, 0x1p-6, 0.875 * 0x1p-6, 0x1p-9, 0x7e, 0x08, 0x07, 2, 0, 480},
	{Float8E5M2, 57344, 0x1p-14, 0.75 * 0x1p-14, 0x1p-16, 0x7b, 0x04, 0x03, 6, 2, 65536},
}

// TestFloat8Limits compares the formats with the table of the specification.
func TestFloat8Limits(t *testing.T) {
	for _, f := range float8s {
		for bits, want := range map[uint8]float64{
			0: 0, 1: f.least, f.largestSubnormalBits: f.largestSubnormal, f.leastNormalBits: f.leastNormal, f.largestBits: f.largest,
		} {
			if got := F8ToF32(f.typ, bits); float64(got) != want {
				t.Errorf("%v %#02x: %v, want %v", f.typ, bits, got, want)
			}
			if got := F8ToF32(f.typ, bits|0x80); float64(got) != -want || !math.Signbit(float64(got)) {
				t.Errorf("%v %#02x: %v, want %v", f.typ, bits|0x80, got, -want)
			}
		}
		nans, infinities := 0, 0
		for i := range 1 << 8 {
			switch v := float64(F8ToF32(f.typ, uint8(i))); {
			case v != v:
				nans++
			case math.IsInf(v, 0):
				infinities++
			}
		}
		if nans != f.nans || infinities != f.infinities {
			t.Errorf("%v: %d NaNs and %d infinities, want %d and %d", f.typ, nans, infinities, f.nans, f.infinities)
		}
	}
}

// TestFloat8Exhaustively: each number has its exact value and converts back. NaNs become the canonical one, and infinities the
// largest number.
func TestFloat8Exhaustively(t *testing.T) {
	for _, k := range float8s {
		f := formats[k.typ]
		for i := range uint64(1 << 8) {
			got, want := float64(F8ToF32(k.typ, uint8(i))), float64Of(f, i)
			if got != want && want == want || (got != got) != (want != want) || math.Signbit(got) != (i >= 0x80) && want == want {
				t.Errorf("%v %#02x: %v, want %v", k.typ, i, got, want)
			}
			back := uint8(f.saturated(i))
			if want != want {
				back = 0x7f
			}
			checkRound8(t, k.typ, got, back)
		}
	}
}

// checkRound8 rounds x, a float32, from float32 and from float64.
func checkRound8(t *testing.T, typ Type, x float64, want uint8) {
	t.Helper()
	if got := F32ToF8(typ, float32(x)); got != want {
		t.Fatalf("%v: %g rounds to %#02x, want %#02x", typ, x, got, want)
	}
	if got := narrowBits(typ, x); got != uint16(want) {
		t.Fatalf("%v: %g rounds from float64 to %#02x, want %#02x", typ, x, got, want)
	}
}

// TestFloat8RoundsTies: the tie between two neighbors is rounded to the even one, and the closest numbers on both sides of the
// tie to the nearest. Nothing is larger than the largest number.
func TestFloat8RoundsTies(t *testing.T) {
	for _, f := range float8s {
		for i := range f.largestBits {
			lo, hi := float64(F8ToF32(f.typ, i)), float64(F8ToF32(f.typ, i+1))
			tie := lo + (hi-lo)/2
			for sign, s := range map[uint8]float64{0: 1, 0x80: -1} {
				checkRound8(t, f.typ, s*tie, sign|i+i&1)
				checkRound8(t, f.typ, s*float64(math.Nextafter32(float32(tie), 0)), sign|i)
				checkRound8(t, f.typ, s*float64(math.Nextafter32(float32(tie), math.MaxFloat32)), sign|(i+1))
				if got := narrowBits(f.typ, s*math.Nextafter(tie, 0)); got != uint16(sign|i) {
					t.Errorf("%v: just below %v rounds to %#02x, want %#02x", f.typ, s*tie, got, sign|i)
				}
				if got := narrowBits(f.typ, s*math.Nextafter(tie, 1e9)); got != uint16(sign|(i+1)) {
					t.Errorf("%v: just above %v rounds to %#02x, want %#02x", f.typ, s*tie, got, sign|(i+1))
				}
			}
		}
		tie := f.largest + (f.beyond-f.largest)/2
		for _, x := range []float64{f.largest, math.Nextafter(f.largest, 1e9), tie, math.Nextafter(tie, 1e9), f.beyond, 1e30, math.Inf(1)} {
			if a, b := narrowBits(f.typ, x), narrowBits(f.typ, -x); a != uint16(f.largestBits) || b != uint16(f.largestBits|0x80) {
				t.Errorf("%v: ±%v rounds to %#02x and %#02x, want ±%v", f.typ, x, a, b, f.largest)
			}
			if a := F32ToF8(f.typ, float32(x)); a != f.largestBits {
				t.Errorf("%v: %v rounds to %#02x, want %v", f.typ, x, a, f.largest)
			}
		}
	}
}

// TestFloat8RoundsRandom: random bits of float32 round as the oracle's search does, and NaNs become the canonical one.
func TestFloat8RoundsRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 8))
	for _, f := range float8s {
		for range 20_000 {
			x := math.Float32frombits(r.Uint32())
			if r.IntN(4) != 0 {
				x = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(40)-22)))
			}
			checkRound8(t, f.typ, float64(x), uint8(formats[f.typ].round(float64(x))))
		}
	}
}

// TestFloat8Pairs compares all reductions of all 65,536 pairs with the oracle.
func TestFloat8Pairs(t *testing.T) {
	const n = 1 << 16
	a, b, want := make([]byte, n), make([]byte, n), make([]byte, n)
	for i := range n {
		a[i], b[i] = byte(i>>8), byte(i)
	}
	for _, f := range float8s {
		for _, op := range []Op{Sum, Prod, Min, Max, Avg} {
			t.Run(fmt.Sprintf("%v/%v", f.typ, op), func(t *testing.T) {
				for i := range n {
					want[i] = byte(wantReduce(f.typ, op, uint64(a[i]), uint64(b[i])))
				}
				for _, im := range append(implementations(), chosen()) {
					if im.has && im.reducer(f.typ, op) != nil {
						checkWhole(t, im, f.typ, op, a, b, want)
						checkWhole(t, im, f.typ, op, b, a, want)
					}
				}
			})
		}
	}
}

// TestFloat8Sums: sums of gradients round at each step, saturate, and keep NaN.
func TestFloat8Sums(t *testing.T) {
	for _, test := range []struct {
		typ        Type
		x, y, want float64
	}{
		{Float8E4M3, 240, 240, 448}, {Float8E4M3, -448, -448, -448}, {Float8E4M3, 16, 1, 16}, {Float8E4M3, 18, 1, 20}, {Float8E4M3, 0x1p-9, 0x1p-9, 0x1p-8},
		{Float8E4M3, 448, -448, 0}, {Float8E4M3, math.NaN(), 1, math.NaN()},
		{Float8E5M2, 57344, 57344, 57344}, {Float8E5M2, 8, 1, 8}, {Float8E5M2, 10, 1, 12}, {Float8E5M2, -0x1p-16, 0x1p-16, 0}, {Float8E5M2, math.NaN(), 0, math.NaN()},
	} {
		x, y := []byte{F32ToF8(test.typ, float32(test.x))}, []byte{F32ToF8(test.typ, float32(test.y))}
		Reducer(test.typ, Sum)(x, x, y)
		if got := float64(F8ToF32(test.typ, x[0])); got != test.want && test.want == test.want || math.IsNaN(got) != math.IsNaN(test.want) {
			t.Errorf("%v: %v + %v = %v, want %v", test.typ, test.x, test.y, got, test.want)
		}
	}
}

// TestFloat8Infinities: sums and products saturate infinities of E5M2, as conversions do. Min and max return an operand.
func TestFloat8Infinities(t *testing.T) {
	const inf, largest, one = 0x7c, 0x7b, 0x3c
	for _, test := range []struct {
		op         Op
		x, y, want byte
	}{
		{Sum, inf, one, largest}, {Sum, 0x80 | inf, one, 0x80 | largest}, {Sum, inf, 0x80 | inf, nan8}, {Prod, inf, 0x80 | one, 0x80 | largest}, {Prod, inf, 0, nan8},
		{Max, inf, one, inf}, {Min, inf, one, one}, {Min, 0x80 | inf, one, 0x80 | inf}, {Max, inf, 0xff, nan8},
	} {
		x := []byte{test.x}
		Reducer(Float8E5M2, test.op)(x, x, []byte{test.y})
		if x[0] != test.want {
			t.Errorf("%v of %#02x and %#02x is %#02x, want %#02x", test.op, test.x, test.y, x[0], test.want)
		}
	}
}

// TestFloat8DivideExhaustively divides each number by many divisors, in short and long vectors.
func TestFloat8DivideExhaustively(t *testing.T) {
	for _, f := range float8s {
		a := make([]byte, 1<<8+10)
		for i := range a {
			a[i] = byte(i)
		}
		for _, n := range divisors() {
			checkDivide(t, generic(), f.typ, a, n, 0)
			checkDivide(t, generic(), f.typ, a[:1<<8], n, 0)
		}
		long, scaled := bytes.Repeat(a[:1<<8], 3), bytes.Clone(a[:1<<8])
		Scale(f.typ, long, 0.3)
		Scale(f.typ, scaled, 0.3)
		if !bytes.Equal(long, bytes.Repeat(scaled, 3)) {
			t.Errorf("%v: a long vector is scaled to other numbers than a short one", f.typ)
		}
	}
}
