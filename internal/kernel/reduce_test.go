package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// guard is the byte that surrounds operands and must not change.
const guard = 0xa5

// offsetCopy returns a copy of p that begins off bytes into a larger array of
// guard bytes, and the array.
func offsetCopy(p []byte, off int) (inner, outer []byte) {
	outer = bytes.Repeat([]byte{guard}, len(p)+128)
	inner = outer[off : off+len(p) : off+len(p)]
	copy(inner, p)
	return inner, outer
}

// guarded reports whether all bytes of outer except n at off are unchanged.
func guarded(outer []byte, off, n int) bool {
	rest := append(bytes.Clone(outer[:off]), outer[off+n:]...)
	return bytes.Count(rest, []byte{guard}) == len(rest)
}

// checkReduce reduces copies of a and b at the given offsets, with a separate dst, dst as a and
// dst as b, and compares each with want.
func checkReduce(t rapid.TB, im implementation, typ Type, op Op, a, b, want []byte, offDst, offA, offB int) {
	t.Helper()
	for _, alias := range []string{"none", "a", "b"} {
		x, outerA := offsetCopy(a, offA)
		y, outerB := offsetCopy(b, offB)
		dst, outer, off := x, outerA, offA
		switch alias {
		case "none":
			dst, outer = offsetCopy(make([]byte, len(a)), offDst)
			off = offDst
		case "b":
			dst, outer, off = y, outerB, offB
		}
		im.reducer(typ, op)(dst, x, y)
		if !bytes.Equal(dst, want) {
			i := firstDifference(typ, dst, want)
			t.Fatalf("%v %v: element %d of %d (offsets %d %d %d, dst aliases %s): %#x op %#x = %#x, want %#x",
				typ, op, i, len(a)/typ.Size(), offDst, offA, offB, alias,
				bitsOf(typ, a, i), bitsOf(typ, b, i), bitsOf(typ, dst, i), bitsOf(typ, want, i))
		}
		if !guarded(outer, off, len(a)) {
			t.Fatalf("%v %v: wrote outside dst of %d bytes (dst aliases %s)", typ, op, len(a), alias)
		}
		if alias == "none" && (!bytes.Equal(x, a) || !bytes.Equal(y, b)) {
			t.Fatalf("%v %v: wrote to an operand", typ, op)
		}
	}
}

func firstDifference(typ Type, p, q []byte) int {
	for i := range len(p) / typ.Size() {
		if bitsOf(typ, p, i) != bitsOf(typ, q, i) {
			return i
		}
	}
	return 0
}

// operands returns two vectors of n random elements, every fourth of them a special value, and the
// expected result of reducing them.
func operands(r *rand.Rand, typ Type, op Op, n int) (a, b, want []byte) {
	marks, size := landmarks(typ), typ.Size()
	a, b, want = make([]byte, n*size), make([]byte, n*size), make([]byte, n*size)
	pick := func() uint64 {
		if r.IntN(4) == 0 {
			return marks[r.IntN(len(marks))]
		}
		return r.Uint64() >> (64 - 8*size)
	}
	for i := range n {
		x, y := pick(), pick()
		setBits(typ, a, i, x)
		setBits(typ, b, i, y)
		setBits(typ, want, i, wantReduce(typ, op, x, y))
	}
	return a, b, want
}

// All lengths up to the largest unrolling in Go, at all alignments.
func TestReduceLengths(t *testing.T) {
	im := generic()
	forEachOp(t, func(t *testing.T, typ Type, op Op) {
		r := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		for n := range 71 {
			a, b, want := operands(r, typ, op, n)
			checkReduce(t, im, typ, op, a, b, want, 0, 0, 0)
			checkReduce(t, im, typ, op, a, b, want, r.IntN(17), r.IntN(17), r.IntN(17))
			checkReduce(t, im, typ, op, a, b, want, n%9, (n/9)%9, 1)
		}
	})
}

// All pairs of landmarks, in the unrolled part of the loops and in their tails.
func TestReduceLandmarks(t *testing.T) {
	forEachReducer(t, func(t *testing.T, im implementation, typ Type, op Op) {
		marks, size := landmarks(typ), typ.Size()
		for _, x := range marks {
			n := len(marks)
			a, b, want := make([]byte, n*size), make([]byte, n*size), make([]byte, n*size)
			for i, y := range marks {
				setBits(typ, a, i, x)
				setBits(typ, b, i, y)
				setBits(typ, want, i, wantReduce(typ, op, x, y))
			}
			checkReduce(t, im, typ, op, a, b, want, 0, 0, 0)
			checkReduce(t, im, typ, op, b, a, want, 0, 0, 0)
			for i := range n { // a single element
				lo, hi := i*size, (i+1)*size
				checkReduce(t, im, typ, op, a[lo:hi], b[lo:hi], want[lo:hi], 0, 0, 0)
			}
		}
	})
}

// Vectors longer than a stage and a block of 16-bit floats, and no multiple of either.
func TestReduceLong(t *testing.T) {
	forEachReducer(t, func(t *testing.T, im implementation, typ Type, op Op) {
		r := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		a, b, want := operands(r, typ, op, 2*halfBlock+stageBytes+13)
		checkReduce(t, im, typ, op, a, b, want, 0, 0, 0)
		checkReduce(t, im, typ, op, a, b, want, 1, 2, 3)
	})
}

func TestReduceProperty(t *testing.T) {
	forEachReducer(t, func(t *testing.T, im implementation, typ Type, op Op) {
		rapid.Check(t, func(t *rapid.T) {
			word := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom(landmarks(typ)))
			x := rapid.SliceOfN(word, 0, 40).Draw(t, "a")
			y := rapid.SliceOfN(word, len(x), len(x)).Draw(t, "b")
			size := typ.Size()
			a, b, want := make([]byte, len(x)*size), make([]byte, len(x)*size), make([]byte, len(x)*size)
			for i := range x {
				setBits(typ, a, i, x[i])
				setBits(typ, b, i, y[i])
				setBits(typ, want, i, wantReduce(typ, op, bitsOf(typ, a, i), bitsOf(typ, b, i)))
			}
			off := rapid.IntRange(0, 16)
			checkReduce(t, im, typ, op, a, b, want, off.Draw(t, "dst"), off.Draw(t, "offset a"), off.Draw(t, "offset b"))
		})
	})
}

// Machines that need alignment reduce through a stage, which is tested on all.
func TestReduceStaged(t *testing.T) {
	forEachOp(t, func(t *testing.T, typ Type, op Op) {
		staged := stagedReducer(typ, op)
		r := rand.New(rand.NewPCG(uint64(typ), uint64(op)))
		for _, n := range []int{0, 1, 63, 64, 65, 600} {
			a, b, want := operands(r, typ, op, n)
			x, _ := offsetCopy(a, 1)
			y, _ := offsetCopy(b, 3)
			staged(x, x, y)
			if !bytes.Equal(x, want) {
				t.Fatalf("%d elements: differs at %d", n, firstDifference(typ, x, want))
			}
		}
	})
}

func forEachOp(t *testing.T, f func(t *testing.T, typ Type, op Op)) {
	for _, typ := range realTypes() {
		for _, op := range allOps {
			if Reducer(typ, op) != nil {
				t.Run(fmt.Sprintf("%v/%v", typ, op), func(t *testing.T) { f(t, typ, op) })
			}
		}
	}
}

func stagedReducer(typ Type, op Op) func(dst, a, b []byte) {
	if op == Avg {
		op = Sum
	}
	if typ.Float() && typ.Size() == 1 { // needs no alignment
		return inGo().reducers[typ][op]
	}
	return func(dst, a, b []byte) { reduceInStage(typ, op, dst, a, b) }
}

func TestReducerDefined(t *testing.T) {
	for typ := range Type(20) {
		for op := range Op(20) {
			isType, isOp := typ >= Int8 && typ <= Float8E5M2, op >= Sum && op <= BitXor
			want := isType && isOp && (typ < Float32 || op < BitAnd) && (!typ.Complex() || op < Min || op == Avg)
			if got := Reducer(typ, op) != nil; got != want {
				t.Errorf("Reducer(%v, %v) defined: %v, want %v", typ, op, got, want)
			}
		}
		if got, want := Divider(typ) != nil, typ >= Int8 && typ <= Float8E5M2; got != want {
			t.Errorf("Divider(%v) defined: %v, want %v", typ, got, want)
		}
	}
}

func TestReducePanics(t *testing.T) {
	p := make([]byte, 64)
	cases := []struct {
		name      string
		typ       Type
		dst, a, b []byte
	}{
		{"short a", Float32, p[:16], p[32:44], p[:16]},
		{"long b", Float32, p[:16], p[:16], p[32:56]},
		{"odd length", Float32, p[:15], p[:15], p[:15]},
		{"odd length of bytes in words", Int16, p[:7], p[:7], p[:7]},
		{"odd length of halves", Float16, p[:7], p[:7], p[:7]},
		{"dst begins inside a", Int64, p[8:24], p[:16], p[8:24]},
		{"dst ends inside b", Int64, p[:16], p[:16], p[8:24]},
	}
	for _, c := range cases {
		for _, op := range []Op{Sum, Min} {
			if !panics(func() { Reducer(c.typ, op)(c.dst, c.a, c.b) }) {
				t.Errorf("%s: %v %v did not panic", c.name, c.typ, op)
			}
		}
	}
	if !panics(func() { Reducer(Int16, BitXor)(p[:7], p[:7], p[:7]) }) {
		t.Error("bit_xor of an odd length did not panic")
	}
	Reducer(Int64, Sum)(p[:16], p[16:32], p[32:48]) // neighbors do not overlap
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestReduceDoesNotAllocate(t *testing.T) {
	dst, x := make([]byte, 4099*8), make([]byte, 4099*8)
	forEachReducer(t, func(t *testing.T, im implementation, typ Type, op Op) {
		if got := testing.AllocsPerRun(10, func() { im.reducer(typ, op)(dst, dst, x) }); got != 0 {
			t.Errorf("reducing allocates %v times", got)
		}
	})
	forEachOp(t, func(t *testing.T, typ Type, op Op) {
		if got := testing.AllocsPerRun(10, func() { Reducer(typ, op)(dst, dst, x) }); got != 0 {
			t.Errorf("choosing and reducing allocates %v times", got)
		}
		staged := stagedReducer(typ, op)
		if got := testing.AllocsPerRun(10, func() { staged(dst, dst, x) }); got != 0 {
			t.Errorf("staging allocates %v times", got)
		}
	})
}

func TestNames(t *testing.T) {
	names := ""
	for typ := range Float8E5M2 + 2 {
		names += fmt.Sprint(typ, "=", typ.Size(), " ")
	}
	for op := range BitXor + 2 {
		names += fmt.Sprint(op, " ")
	}
	want := "unknown=0 int8=1 int16=2 int32=4 int64=8 uint8=1 uint16=2 uint32=4 uint64=8 " +
		"float32=4 float64=8 float16=2 bfloat16=2 complex64=8 complex128=16 float8_e4m3=1 float8_e5m2=1 unknown=0 " +
		"unknown sum prod min max avg bit_and bit_or bit_xor unknown "
	if names != want {
		t.Errorf("got  %s\nwant %s", names, want)
	}
}
