package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// An implementation has the functions for one kind of processor. A nil function means the Go
// code.
type implementation struct {
	name    string // also in NEXAR_REQUIRE
	has     bool   // this machine supports it
	reducer func(Type, Op) func(dst, a, b []byte)
	divider func(Type) func(dst []byte, n int)

	// The conversions of multiples of 16 elements of Float16 and BFloat16.
	widen map[Type]func(dst []float32, src []uint16)
	round map[Type]func(dst []uint16, src []float32)
}

// implementations returns the Go implementation, which is the reference, and all others.
func implementations() []implementation {
	generic := implementation{
		name: "generic", has: true,
		reducer: func(t Type, op Op) func(dst, a, b []byte) { return inGo().reducers[t][op] },
		divider: func(t Type) func(dst []byte, n int) { return inGo().dividers[t] },
		widen:   map[Type]func(dst []float32, src []uint16){Float16: widenFloat16, BFloat16: widenBFloat16},
		round:   map[Type]func(dst []uint16, src []float32){Float16: roundFloat16, BFloat16: roundBFloat16},
	}
	return append([]implementation{generic}, vectorImplementations()...)
}

func generic() implementation { return implementations()[0] }

// chosen returns the implementation that callers get on this machine.
func chosen() implementation {
	return implementation{
		name: "chosen", has: true, reducer: Reducer, divider: Divider,
		widen: map[Type]func(dst []float32, src []uint16){Float16: ConvertF16ToF32, BFloat16: ConvertBF16ToF32},
		round: map[Type]func(dst []uint16, src []float32){Float16: ConvertF32ToF16, BFloat16: ConvertF32ToBF16},
	}
}

// need skips the test on a machine that cannot run the implementation, and logs it.
func (im implementation) need(t *testing.T) {
	t.Helper()
	require.Have(t, im.name, im.has, "the processor lacks the instructions")
}

func forEachImplementation(t *testing.T, f func(t *testing.T, im implementation)) {
	for _, im := range implementations() {
		t.Run(im.name, func(t *testing.T) {
			im.need(t)
			f(t, im)
		})
	}
}

// forEachReducer runs f with each reduction of each implementation.
func forEachReducer(t *testing.T, f func(t *testing.T, im implementation, typ Type, op Op)) {
	forEachImplementation(t, func(t *testing.T, im implementation) {
		for _, typ := range realTypes() {
			for _, op := range allOps {
				if im.reducer(typ, op) != nil {
					t.Run(fmt.Sprintf("%v/%v", typ, op), func(t *testing.T) { f(t, im, typ, op) })
				}
			}
		}
	})
}

// fillSpecial fills p with random bits, and every n-th element with a landmark.
func fillSpecial(r *rand.Rand, typ Type, p []byte, every int) {
	marks := landmarks(typ)
	for i := range len(p) / typ.Size() {
		v := r.Uint64()
		if r.IntN(every) == 0 {
			v = marks[r.IntN(len(marks))]
		}
		setBits(typ, p, i, v)
	}
}
