package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// forEachDivider runs f with each division of each implementation.
func forEachDivider(t *testing.T, f func(t *testing.T, im implementation, typ Type)) {
	forEachImplementation(t, func(t *testing.T, im implementation) {
		for _, typ := range realTypes() {
			if im.divider(typ) != nil {
				t.Run(typ.String(), func(t *testing.T) { f(t, im, typ) })
			}
		}
	})
}

func TestDivide(t *testing.T) {
	forEachDivider(t, func(t *testing.T, im implementation, typ Type) {
		r := rand.New(rand.NewPCG(uint64(typ), 1))
		for _, n := range divisors() {
			a := make([]byte, (r.IntN(64)+64)*typ.Size())
			fillSpecial(r, typ, a, 4)
			checkDivide(t, im, typ, a, n, r.IntN(64))
		}
	})
}

// divisors returns numbers of ranks and boundary values: the limits of types, and powers of two
// and their neighbors.
func divisors() []int {
	all := []int{10, 100, 1000, 70001, divisorMax}
	for i := range 24 {
		all = append(all, max(1, 1<<i-1), 1<<i, 1<<i+1)
	}
	return all
}

// All lengths, at some alignment.
func TestDivideLengths(t *testing.T) {
	forEachDivider(t, func(t *testing.T, im implementation, typ Type) {
		r := rand.New(rand.NewPCG(uint64(typ), 2))
		for length := range 140 {
			a := make([]byte, length*typ.Size())
			fillSpecial(r, typ, a, 4)
			checkDivide(t, im, typ, a, 1+length%8, r.IntN(64))
		}
	})
}

// Every float16 and bfloat16 is divided correctly by the smallest number that makes rounding
// twice wrong. A float16 cannot hold it.
func TestDivideHalvesExhaustively(t *testing.T) {
	divisor := map[Type]int{Float16: 8195, BFloat16: 65791}
	a := make([]byte, 2<<16)
	for i := range 1 << 16 {
		setBits(Float16, a, i, uint64(i))
	}
	forEachDivider(t, func(t *testing.T, im implementation, typ Type) {
		if n, ok := divisor[typ]; ok {
			checkDivide(t, im, typ, a, n, 0)
		}
	})
}

// checkDivide compares the Go implementation with the oracle, and all others with the Go
// implementation, which is faster.
func checkDivide(t *testing.T, im implementation, typ Type, a []byte, n, off int) {
	t.Helper()
	got, outer := offsetCopy(a, off)
	im.divider(typ)(got, n)
	want := bytes.Clone(a)
	if im.name != generic().name {
		divide(typ, want, n)
	} else {
		for i := range len(a) / typ.Size() {
			setBits(typ, want, i, wantQuotient(typ, bitsOf(typ, a, i), n))
		}
	}
	if !bytes.Equal(got, want) {
		i := firstDifference(typ, got, want)
		t.Fatalf("%v: %#x / %d = %#x, want %#x", typ, bitsOf(typ, a, i), n, bitsOf(typ, got, i), bitsOf(typ, want, i))
	}
	if !guarded(outer, off, len(a)) {
		t.Fatalf("%v: wrote outside", typ)
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
	for _, typ := range realTypes() {
		if !panics(func() { Divider(typ)(make([]byte, 16), 0) }) {
			t.Errorf("%v: division by 0 did not panic", typ)
		}
		if !panics(func() { Divider(typ)(make([]byte, 16), divisorMax+1) }) {
			t.Errorf("%v: division by more than is exact did not panic", typ)
		}
		if size := typ.Size(); size > 1 && !panics(func() { Divider(typ)(make([]byte, size+1), 2) }) {
			t.Errorf("%v: odd length did not panic", typ)
		}
	}
}

func TestDivideDoesNotAllocate(t *testing.T) {
	forEachDivider(t, func(t *testing.T, im implementation, typ Type) {
		dst := make([]byte, 1003*typ.Size())
		divide := im.divider(typ)
		if got := testing.AllocsPerRun(10, func() { divide(dst, 3) }); got != 0 {
			t.Errorf("dividing allocates %v times", got)
		}
	})
}
