package kernel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// A halfKind is one of the two 16-bit formats and its conversions.
type halfKind struct {
	typ       Type
	widen     func(uint16) float32
	round     func(float32) uint16
	roundBits func(uint32) uint16
	round64   func(float64) uint16
	roundAll  func([]uint16, []float32)
}

var halfKinds = []halfKind{
	{Float16, F16ToF32, F32ToF16, roundF16, F64ToF16, ConvertF32ToF16},
	{BFloat16, BF16ToF32, F32ToBF16, roundBF16, F64ToBF16, ConvertF32ToBF16},
}

// Each of the 65,536 numbers is widened to its exact value and converts back.
func TestHalfWidenExhaustively(t *testing.T) {
	for _, k := range halfKinds {
		f := formats[k.typ]
		for i := range 1 << 16 {
			h := uint16(i)
			got := k.widen(h)
			if f.isNaN(uint64(h)) {
				// Sign and payload move to the top. BFloat16 keeps a signaling NaN.
				want := uint32(h&0x8000)<<16 | 0x7f800000 | uint32(h)<<(23-f.mantissa)&0x7fffff
				if k.typ == Float16 {
					want |= 1 << 22
				}
				if bits := math.Float32bits(got); bits != want {
					t.Fatalf("%v %#04x: widened to %#x, want %#x", k.typ, h, bits, want)
				}
				if back := k.round(got); back != h|uint16(f.nan()&^f.infinity()) {
					t.Fatalf("%v %#04x: NaN came back as %#04x", k.typ, h, back)
				}
				continue
			}
			if want := float64Of(f, uint64(h)); float64(got) != want || math.Signbit(float64(got)) != (h>>15 == 1) {
				t.Fatalf("%v %#04x: widened to %v, want %v", k.typ, h, got, want)
			}
			if back := k.round(got); back != h {
				t.Fatalf("%v %#04x: came back as %#04x", k.typ, h, back)
			}
			if back := k.round64(float64(got)); back != h {
				t.Fatalf("%v %#04x: came back from float64 as %#04x", k.typ, h, back)
			}
		}
	}
}

// Between two neighbors lies a tie, which is rounded to the even one. The closest numbers on
// either side of the tie are rounded to the nearest.
func TestHalfRoundsTies(t *testing.T) {
	for _, k := range halfKinds {
		f := formats[k.typ]
		for i := range f.infinity() {
			lo, _ := f.value(i).Float64()
			hi, _ := f.value(i + 1).Float64() // of infinity: the next power of two
			tie := lo + (hi-lo)/2
			even := uint16(i + i&1)
			for _, sign := range []float64{1, -1} {
				h := uint16(0)
				if sign < 0 {
					h = 0x8000
				}
				checkRound(t, k.typ, k.round64, sign*tie, h|even)
				checkRound(t, k.typ, k.round64, sign*math.Nextafter(tie, 0), h|uint16(i))
				checkRound(t, k.typ, k.round64, sign*math.Nextafter(tie, math.Inf(1)), h|uint16(i+1))
				round := func(x float64) uint16 { return k.round(float32(x)) }
				checkRound(t, k.typ, round, sign*tie, h|even)
				down := math.Nextafter32(float32(tie), 0)
				up := math.Nextafter32(float32(tie), float32(math.Inf(1)))
				checkRound(t, k.typ, round, sign*float64(down), h|uint16(i))
				checkRound(t, k.typ, round, sign*float64(up), h|uint16(i+1))
			}
		}
	}
}

func checkRound(t *testing.T, typ Type, round func(float64) uint16, x float64, want uint16) {
	t.Helper()
	if got := round(x); got != want {
		t.Fatalf("%v: %g (%#x) rounds to %#04x, want %#04x", typ, x, math.Float64bits(x), got, want)
	}
}

// Random bits of float32 and float64 round as the oracle's search does.
func TestHalfRoundsRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range halfKinds {
		f := formats[k.typ]
		for range 20_000 {
			x := math.Float32frombits(r.Uint32())
			if r.IntN(2) == 0 { // the range of most float16
				x = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(45)-28)))
			}
			if want := uint16(f.round(float64(x))); x == x {
				checkRound(t, k.typ, func(float64) uint16 { return k.round(x) }, float64(x), want)
				checkRound(t, k.typ, k.round64, float64(x), want)
			}
			y := math.Float64frombits(r.Uint64())
			if r.IntN(4) != 0 {
				y = r.NormFloat64() * math.Exp2(float64(r.IntN(400)-200))
			}
			if y == y {
				checkRound(t, k.typ, k.round64, y, uint16(f.nearest(new(big.Float).SetFloat64(y))))
			}
		}
	}
}

func TestHalfLimits(t *testing.T) {
	inf, negZero := math.Inf(1), math.Copysign(0, -1)
	for _, c := range []struct {
		x    float64
		want uint16
	}{
		{65504, 0x7bff}, {65519.996, 0x7bff}, {65520, 0x7c00}, {1e30, 0x7c00}, {-1e300, 0xfc00},
		{inf, 0x7c00}, {-inf, 0xfc00}, {negZero, 0x8000}, {5e-324, 0}, {-5e-324, 0x8000},
		{0x1p-25, 0}, {0x1.8p-25, 1}, {-0x1p-26, 0x8000}, {0x1.ffcp-15, 0x0400}, {0x1.ff8p-15, 0x03ff},
	} {
		checkRound(t, Float16, F64ToF16, c.x, c.want)
		checkRound(t, Float16, func(x float64) uint16 { return F32ToF16(float32(x)) }, c.x, c.want)
	}
	for _, c := range []struct {
		x    float64
		want uint16
	}{
		{1, 0x3f80}, {0x1.fep127, 0x7f7f}, {0x1.ffp127, 0x7f80}, {1e300, 0x7f80}, {-inf, 0xff80},
		{negZero, 0x8000}, {0x1p-133, 1}, {0x1p-134, 0}, {0x1.8p-134, 1}, {-5e-324, 0x8000},
	} {
		checkRound(t, BFloat16, F64ToBF16, c.x, c.want)
		checkRound(t, BFloat16, func(x float64) uint16 { return F32ToBF16(float32(x)) }, c.x, c.want)
	}
}

// A NaN keeps its sign and the upper bits of its payload, and never turns into infinity, even
// if only the lower bits of its payload are set.
func TestHalfRoundsNaN(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, k := range halfKinds {
		f := formats[k.typ]
		quiet := uint16(1) << (f.mantissa - 1)
		for i := range 2000 {
			payload := max(r.Uint32()>>(9+i%23), 1) // 1 to 23 bits
			sign := r.Uint32() & (1 << 31)
			v := sign | 0x7f800000 | payload
			want := uint16(sign>>16) | uint16(f.infinity()) | uint16(payload>>(23-f.mantissa)) | quiet
			var got [1]uint16
			k.roundAll(got[:], []float32{math.Float32frombits(v)})
			if got[0] != want {
				t.Fatalf("%v: %#x rounds to %#04x, want %#04x", k.typ, v, got[0], want)
			}
			wide := uint64(sign)<<32 | 0x7ff<<52 | uint64(payload)<<29
			for _, low := range []uint64{0, 1, 1<<29 - 1} {
				if got := k.round64(math.Float64frombits(wide | low)); got != want {
					t.Fatalf("%v: %#x rounds to %#04x, want %#04x", k.typ, wide|low, got, want)
				}
			}
		}
	}
}

// The conversions of slices agree with those of numbers: for all 16-bit numbers, and for
// float32 around all ties and random bits, including NaNs.
func TestConvertSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, im := range append(implementations(), chosen()) {
		for _, k := range halfKinds {
			if im.widen[k.typ] == nil {
				continue
			}
			t.Run(im.name+"/"+k.typ.String(), func(t *testing.T) {
				im.need(t)
				half, wide := make([]uint16, 1<<16), make([]float32, 1<<16)
				for i := range half {
					half[i] = uint16(i)
				}
				im.widen[k.typ](wide, half)
				for i, got := range bits32(wide) {
					if want := math.Float32bits(k.widen(uint16(i))); got != want {
						t.Fatalf("%#04x widened to %#x, want %#x", i, got, want)
					}
				}
				checkRoundSlice(t, im, k, wide)
				tie := uint32(1) << (22 - formats[k.typ].mantissa)
				for _, d := range []uint32{tie - 1, tie, tie + 1} {
					near := append([]float32(nil), wide...)
					for i := range near {
						bits32(near)[i] += d
					}
					checkRoundSlice(t, im, k, near)
				}
				for i := range wide {
					bits32(wide)[i] = r.Uint32()
				}
				checkRoundSlice(t, im, k, wide)
			})
		}
	}
}

func checkRoundSlice(t *testing.T, im implementation, k halfKind, wide []float32) {
	t.Helper()
	half := make([]uint16, len(wide))
	im.round[k.typ](half, wide)
	for i, got := range half {
		v := bits32(wide)[i]
		if want := k.roundBits(v); got != want {
			t.Fatalf("%#x rounded to %#04x, want %#04x", v, got, want)
		}
	}
}

// All lengths, at every valid alignment.
func TestConvertLengths(t *testing.T) {
	for _, k := range halfKinds {
		for n := range 140 {
			half, wide := make([]uint16, n+32), make([]float32, n+32)
			for i := range half {
				half[i] = uint16(i * 0x0101)
				wide[i] = -1
			}
			from := n % 17
			convert := chosen()
			convert.widen[k.typ](wide[from:from+n], half[5:5+n])
			for i, got := range wide {
				want := float32(-1)
				if i >= from && i < from+n {
					want = k.widen(half[5+i-from])
				}
				if got != want && want == want {
					t.Fatalf("%v: element %d of %d: %v, want %v", k.typ, i-from, n, got, want)
				}
			}
			back := make([]uint16, n+32)
			convert.round[k.typ](back[3:3+n], wide[from:from+n])
			for i, got := range back {
				want := uint16(0)
				if i >= 3 && i < 3+n {
					want = k.round(wide[from+i-3])
				}
				if got != want {
					t.Fatalf("%v: element %d of %d: %#04x, want %#04x", k.typ, i-3, n, got, want)
				}
			}
		}
	}
}

func TestConvertMisuse(t *testing.T) {
	half, wide := make([]uint16, 100), make([]float32, 100)
	for _, k := range halfKinds {
		widen, round := chosen().widen[k.typ], chosen().round[k.typ]
		if !panics(func() { widen(wide[:3], half[:4]) }) || !panics(func() { round(half[:4], wide[:3]) }) {
			t.Errorf("%v: slices of different lengths did not panic", k.typ)
		}
		if n := testing.AllocsPerRun(10, func() { widen(wide, half); round(half, wide) }); n != 0 {
			t.Errorf("%v: converting allocates %v times", k.typ, n)
		}
	}
}
