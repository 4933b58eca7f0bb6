package kernel

import (
	"slices"
	"testing"
)

// TestCustom: the function gets copies of both operands in their order, and its first
// argument is the result, also if dst is an operand.
func TestCustom(t *testing.T) {
	type pair struct{ a, b int16 }
	reduce := Custom(func(dst, src []pair) {
		for i := range dst {
			dst[i] = pair{10*dst[i].a + src[i].a, dst[i].b - src[i].b}
			src[i] = pair{}
		}
	})
	x, y := []pair{{1, 2}, {3, 4}}, []pair{{5, 6}, {7, 8}}
	want := []pair{{15, -4}, {37, -4}}
	reduce(memory(y), memory(x), memory(y))
	if !slices.Equal(y, want) || !slices.Equal(x, []pair{{1, 2}, {3, 4}}) {
		t.Errorf("%v and %v, want %v", x, y, want)
	}
	reduce(nil, nil, nil)
}
