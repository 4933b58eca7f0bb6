package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func TestDivide(t *testing.T) {
	for typ := Int8; typ <= BFloat16; typ++ {
		t.Run(typ.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(typ), 1))
			for _, n := range []int{1, 2, 3, 7, 10, 127, 128, 200, 255, 256, 1000, 4097, 70001, 1 << 20} {
				a, _, _ := operands(r, typ, Sum, 300)
				for off := range 3 {
					checkDivide(t, typ, a, n, off)
				}
			}
		})
	}
}

func checkDivide(t *testing.T, typ Type, a []byte, n, off int) {
	t.Helper()
	got, outer := offsetCopy(a, off)
	Divider(typ)(got, n)
	for i := range len(a) / typ.Size() {
		x := bitsOf(typ, a, i)
		if got, want := bitsOf(typ, got, i), wantQuotient(typ, x, n); got != want {
			t.Fatalf("%v: %#x / %d = %#x, want %#x", typ, x, n, got, want)
		}
	}
	if !guarded(outer, off, len(a)) {
		t.Fatalf("%v: wrote outside", typ)
	}
}

// Every float16 and bfloat16 is divided right, also by numbers that a float16
// cannot hold, and by the first at which rounding twice would show.
func TestDivideHalvesExhaustively(t *testing.T) {
	for typ, divisors := range map[Type][]int{Float16: {3, 8195}, BFloat16: {3, 65791}} {
		for _, n := range divisors {
			a := make([]byte, 2<<16)
			for i := range 1 << 16 {
				setBits(typ, a, i, uint64(i))
			}
			checkDivide(t, typ, a, n, 0)
		}
	}
}

func TestDivideTruncates(t *testing.T) {
	p := []byte{0xf9, 7} // -7 and 7 as int8
	Divider(Int8)(p, 2)
	if want := []byte{0xfd, 3}; !bytes.Equal(p, want) {
		t.Errorf("got %x, want %x", p, want)
	}
}

func TestDividePanics(t *testing.T) {
	for typ := Int8; typ <= BFloat16; typ++ {
		if !panics(func() { Divider(typ)(make([]byte, 16), 0) }) {
			t.Errorf("%v: division by 0 did not panic", typ)
		}
		if size := typ.Size(); size > 1 && !panics(func() { Divider(typ)(make([]byte, size+1), 2) }) {
			t.Errorf("%v: odd length did not panic", typ)
		}
	}
}
