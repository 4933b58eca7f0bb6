package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// Products of complex elements have correctly rounded steps, are commutative bit for bit,
// and do not depend on the alignment.
func TestComplexProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	part := func() float64 {
		return []float64{r.NormFloat64(), r.NormFloat64() * 1e-300, r.NormFloat64() * 1e300, 0, math.Copysign(0, -1), math.Inf(1), math.NaN()}[r.IntN(7)]
	}
	const n = 301
	var a, b [n]complex128
	for i := range n {
		a[i], b[i] = complex(part(), part()), complex(part(), part())
	}
	of := func(x []complex128) []byte {
		return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 16*len(x))
	}
	want := make([]complex128, n)
	for i := range n {
		// The conversions keep the compiler from fusing a product with the addition.
		ac, bd := float64(real(a[i])*real(b[i])), float64(imag(a[i])*imag(b[i]))
		ad, bc := float64(real(a[i])*imag(b[i])), float64(imag(a[i])*real(b[i]))
		want[i] = complex(quiet(ac-bd), quiet(ad+bc))
	}
	prod := Reducer(Complex128, Prod)
	got := make([]byte, 16*n)
	prod(got, of(a[:]), of(b[:]))
	if !bytes.Equal(got, of(want)) {
		t.Error("a product differs from that of its parts")
	}
	prod(got, of(b[:]), of(a[:]))
	if !bytes.Equal(got, of(want)) {
		t.Error("a product depends on the order of its factors")
	}
	odd := append([]byte{0}, of(a[:])...)[1:]
	reduceAligned(Complex128, Prod, odd, odd, of(b[:]))
	if !bytes.Equal(odd, of(want)) {
		t.Error("a product depends on the alignment")
	}
}

// quiet replaces a NaN by the canonical one.
func quiet(x float64) float64 {
	if x != x {
		return math.Float64frombits(0x7ff8000000000000)
	}
	return x
}

// Sums and averages of complex elements are those of their parts; other operations are not
// defined.
func TestComplexOps(t *testing.T) {
	x, y := []complex64{1 + 2i, -3i}, []complex64{10 - 4i, 5}
	of := func(x []complex64) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 8*len(x)) }
	for _, reduce := range []func(dst, a, b []byte){Reducer(Complex64, Sum), Reducer(Complex64, Avg)} {
		got := make([]complex64, 2)
		reduce(of(got), of(x), of(y))
		if got[0] != 11-2i || got[1] != 5-3i {
			t.Errorf("the sum is %v", got)
		}
	}
	got := make([]complex64, 2)
	Reducer(Complex64, Prod)(of(got), of(x), of(y))
	if got[0] != x[0]*y[0] || got[1] != x[1]*y[1] {
		t.Errorf("the product is %v", got)
	}
	Divider(Complex64)(of(got), 2)
	if got[0] != x[0]*y[0]/2 || got[1] != x[1]*y[1]/2 {
		t.Errorf("the average is %v", got)
	}
	for _, op := range []Op{Min, Max, BitAnd, BitOr, BitXor, 0, 255} {
		if Reducer(Complex64, op) != nil || Reducer(Complex128, op) != nil {
			t.Errorf("%v of complex elements is defined", op)
		}
	}
}
