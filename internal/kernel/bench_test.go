//race:none tests of other packages use it with goroutines

package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var benchSizes = []struct {
	name  string
	bytes int
}{{"16KiB", 16 << 10}, {"1MiB", 1 << 20}, {"64MiB", 64 << 20}}

// usable returns the implementations that this machine can run.
func usable() (all []implementation) {
	for _, im := range implementations() {
		if im.has {
			all = append(all, im)
		}
	}
	return all
}

// BenchmarkReduce counts the bytes of dst, which is also an operand, as in a collective.
func BenchmarkReduce(b *testing.B) {
	for _, t := range realTypes() {
		for _, op := range []Op{Sum, Prod, Min} {
			for _, im := range usable() {
				for _, size := range benchSizes {
					if reduce := im.reducer(t, op); reduce != nil {
						b.Run(fmt.Sprintf("%v/%v/%s/%s", t, op, im.name, size.name), func(b *testing.B) {
							benchmarkReduce(b, reduce, t, op, size.bytes)
						})
					}
				}
			}
		}
	}
}

func benchmarkReduce(b *testing.B, reduce func(dst, a, b []byte), t Type, op Op, n int) {
	x, dst := make([]byte, n), make([]byte, n)
	if op != Prod { // zeros stay zeros; other products would overflow
		fillOrdinary(t, x, 1)
		fillOrdinary(t, dst, 2)
	}
	b.SetBytes(int64(n))
	b.ReportAllocs()
	for b.Loop() {
		reduce(dst, dst, x)
	}
}

// BenchmarkCopy measures the bandwidth of memory.
func BenchmarkCopy(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			x, dst := make([]byte, size.bytes), make([]byte, size.bytes)
			fillOrdinary(Uint8, x, 1) // Pages that are never written share one page of zeros.
			b.SetBytes(int64(size.bytes))
			b.ReportAllocs()
			for b.Loop() {
				copy(dst, x)
			}
		})
	}
}

// BenchmarkReduceSmall measures the overhead of a call.
func BenchmarkReduceSmall(b *testing.B) {
	for _, t := range []Type{Int8, Int64, Float32, Float16} {
		b.Run(t.String(), func(b *testing.B) {
			dst, x := make([]byte, 8), make([]byte, 8)
			b.ReportAllocs()
			for b.Loop() {
				Reducer(t, Sum)(dst, dst, x)
			}
		})
	}
}

// BenchmarkDivide includes a copy, so that the numbers do not decay to zero.
func BenchmarkDivide(b *testing.B) {
	for _, t := range realTypes() {
		b.Run(t.String(), func(b *testing.B) {
			src, dst := make([]byte, 64<<10), make([]byte, 64<<10)
			fillOrdinary(t, src, 1)
			divide := Divider(t)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for b.Loop() {
				copy(dst, src)
				divide(dst, 3)
			}
		})
	}
}

// BenchmarkConvert counts the bytes of the float32 side.
func BenchmarkConvert(b *testing.B) {
	const n = 16 << 10
	f, h := make([]float32, n), make([]uint16, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range f {
		f[i] = float32(r.NormFloat64())
		if r.IntN(4) == 0 {
			f[i] *= 1e-5 // subnormal as a float16
		}
	}
	for _, c := range []struct {
		name    string
		convert func()
	}{
		{"F32ToF16", func() { ConvertF32ToF16(h, f) }},
		{"F16ToF32", func() { ConvertF16ToF32(f, h) }},
		{"F32ToBF16", func() { ConvertF32ToBF16(h, f) }},
		{"BF16ToF32", func() { ConvertBF16ToF32(f, h) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for b.Loop() {
				c.convert()
			}
		})
	}
}

// fillOrdinary fills p with typical numbers: random integers, normally distributed floats.
func fillOrdinary(t Type, p []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, seed))
	const period = 16 << 10 // too long for a branch predictor to learn
	n := min(len(p), period*t.Size())
	for i := range n / t.Size() {
		x := r.NormFloat64()
		switch t {
		case Float16:
			setBits(t, p, i, uint64(F64ToF16(x)))
		case BFloat16:
			setBits(t, p, i, uint64(F64ToBF16(x)))
		case Float8E4M3, Float8E5M2:
			setBits(t, p, i, uint64(F32ToF8(t, float32(x))))
		case Float32:
			setBits(t, p, i, uint64(math.Float32bits(float32(x))))
		case Float64:
			setBits(t, p, i, math.Float64bits(x))
		default:
			setBits(t, p, i, r.Uint64())
		}
	}
	for n > 0 && n < len(p) {
		n += copy(p[n:], p[:n])
	}
}
