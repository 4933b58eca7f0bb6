package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

// TestIdentityOfIntegers: the identity of each operation changes no integer.
func TestIdentityOfIntegers(t *testing.T) {
	for typ := Int8; typ <= Uint64; typ++ {
		for op := Sum; op <= BitXor; op++ {
			x := make([]byte, 300*typ.Size())
			rand.NewChaCha8([32]byte{byte(typ), byte(op)}).Read(x)
			got := bytes.Repeat([]byte{0xa5}, len(x))
			Identity(typ, op, got)
			Reducer(typ, op)(got, got, x)
			if !bytes.Equal(got, x) {
				t.Errorf("%v of %v: combined with the identity, elements differ", op, typ)
			}
		}
	}
}

// TestIdentityOfFloats compares the identities of floats, and of the two parts of complex elements, with their values.
func TestIdentityOfFloats(t *testing.T) {
	read := map[Type]func(b []byte) (first, last float64){
		Float32: func(b []byte) (_, _ float64) { v := view[float32](b); return float64(v[0]), float64(v[len(v)-1]) },
		Float64: func(b []byte) (_, _ float64) { v := view[float64](b); return v[0], v[len(v)-1] },
		Float16: func(b []byte) (_, _ float64) {
			v := view[uint16](b)
			return float64(F16ToF32(v[0])), float64(F16ToF32(v[len(v)-1]))
		},
		BFloat16: func(b []byte) (_, _ float64) {
			v := view[uint16](b)
			return float64(BF16ToF32(v[0])), float64(BF16ToF32(v[len(v)-1]))
		},
	}
	for _, typ := range []Type{Float8E4M3, Float8E5M2} {
		read[typ] = func(b []byte) (_, _ float64) {
			return float64(F8ToF32(typ, b[0])), float64(F8ToF32(typ, b[len(b)-1]))
		}
	}
	for op, want := range map[Op]float64{Sum: 0, Avg: 0, Prod: 1, Min: math.Inf(1), Max: math.Inf(-1)} {
		for typ, values := range read {
			b := bytes.Repeat([]byte{0xa5}, 5*typ.Size())
			Identity(typ, op, b)
			want := want
			if typ == Float8E4M3 { // has no infinities
				want = max(-448, min(want, 448))
			}
			if first, last := values(b); first != want || last != want {
				t.Errorf("%v of %v: %v and %v, want %v", op, typ, first, last, want)
			}
		}
	}
	for op, want := range map[Op]float64{Sum: 0, Avg: 0, Prod: 1} { // the real part; the imaginary part is 0
		b := bytes.Repeat([]byte{0xa5}, 2*16)
		Identity(Complex128, op, b)
		if v := view[float64](b); v[0] != want || v[1] != 0 || v[2] != want || v[3] != 0 {
			t.Errorf("%v of complex128: %v, want %v and 0", op, v, want)
		}
		Identity(Complex64, op, b)
		if v := view[float32](b); v[0] != float32(want) || v[1] != 0 || v[6] != float32(want) || v[7] != 0 {
			t.Errorf("%v of complex64: %v, want %v and 0", op, v, want)
		}
	}
}
