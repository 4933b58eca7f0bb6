package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// forEachFolder runs f with each fold of each implementation.
func forEachFolder(t *testing.T, f func(t *testing.T, typ Type, op Op, fold func(dst []byte, srcs [][]byte))) {
	for _, im := range append(implementations(), chosen()) {
		t.Run(im.name, func(t *testing.T) {
			im.need(t)
			for typ := Int8; typ <= BFloat16; typ++ {
				for _, op := range allOps {
					if fold := im.folder(typ, op); fold != nil {
						t.Run(fmt.Sprintf("%v/%v", typ, op), func(t *testing.T) { f(t, typ, op, fold) })
					}
				}
			}
		})
	}
}

// foldOperands returns k vectors of n elements, and the expected result: that of reductions in Go,
// one after the other.
func foldOperands(r *rand.Rand, typ Type, op Op, k, n int) (srcs [][]byte, want []byte) {
	for range k {
		src := make([]byte, n*typ.Size())
		fillSpecial(r, typ, src, 8)
		srcs = append(srcs, src)
	}
	want = bytes.Clone(srcs[0])
	for _, src := range srcs[1:] {
		generic().reducer(typ, op)(want, want, src)
	}
	return srcs, want
}

func TestFold(t *testing.T) {
	forEachFolder(t, func(t *testing.T, typ Type, op Op, fold func(dst []byte, srcs [][]byte)) {
		r := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		lengths := []int{0, 1, 7, 31, 32, 33, 127, 128, 129, 1500, 2*foldBytes + 5}
		for i, n := range lengths {
			k := 1 + i%9
			srcs, want := foldOperands(r, typ, op, k, n)
			dst, outer := offsetCopy(make([]byte, len(want)), i)
			fold(dst, srcs)
			if !bytes.Equal(dst, want) || !guarded(outer, i, len(want)) {
				t.Fatalf("%d vectors of %d: differs at %d, or wrote outside", k, n, firstDifference(typ, dst, want))
			}
			in := r.IntN(k) // also in place
			fold(srcs[in], srcs)
			if !bytes.Equal(srcs[in], want) {
				t.Fatalf("%d vectors of %d, to the one of index %d: differs at %d", k, n, in, firstDifference(typ, srcs[in], want))
			}
		}
	})
}

// The fold of one operand returns it unchanged.
func TestFoldOfOne(t *testing.T) {
	src := []byte{1, 0, 0x80, 0xff, 1, 0, 0x80, 0xff} // signaling NaNs
	dst := make([]byte, len(src))
	Fold(Float32, Sum)(dst, [][]byte{src})
	if !bytes.Equal(dst, src) {
		t.Errorf("got %x, want %x", dst, src)
	}
}

func TestFoldDefined(t *testing.T) {
	for typ := range Type(20) {
		for op := range Op(20) {
			if got, want := Fold(typ, op) != nil, Reducer(typ, op) != nil; got != want {
				t.Errorf("Fold(%v, %v) defined: %v, want %v", typ, op, got, want)
			}
		}
	}
}

func TestFoldPanics(t *testing.T) {
	forEachFolder(t, func(t *testing.T, typ Type, op Op, fold func(dst []byte, srcs [][]byte)) {
		p := make([]byte, 256)
		for name, srcs := range map[string][][]byte{
			"no vector":         nil,
			"a short vector":    {p[64:128], p[128:184]},
			"an overlap":        {p[64:128], p[8:72]},
			"dst more than one": {p[:64], p[64:128], p[:64]},
		} {
			if !panics(func() { fold(p[:64], srcs) }) {
				t.Errorf("%s did not panic", name)
			}
		}
		if size := typ.Size(); size > 1 && !panics(func() { fold(p[:size+1], [][]byte{p[64 : 65+size]}) }) {
			t.Error("half an element did not panic")
		}
	})
}

func TestFoldDoesNotAllocate(t *testing.T) {
	forEachFolder(t, func(t *testing.T, typ Type, op Op, fold func(dst []byte, srcs [][]byte)) {
		r := rand.New(rand.NewPCG(1, 2))
		srcs, _ := foldOperands(r, typ, op, 3, 1003)
		if got := testing.AllocsPerRun(10, func() { fold(srcs[1], srcs) }); got != 0 {
			t.Errorf("folding allocates %v times", got)
		}
	})
}
