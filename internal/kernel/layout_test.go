package kernel

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
)

func TestLayout(t *testing.T) {
	type inner struct {
		A int8
		B int32
	}
	type outer struct {
		_ struct{}
		X bool
		Y [2]inner
		_ int16
		Z [3]uint16
		W float64
		V uint8
	}
	for _, test := range []struct {
		t       reflect.Type
		padding [][2]int
	}{
		{reflect.TypeFor[inner](), [][2]int{{1, 3}}},
		{reflect.TypeFor[[2]inner](), [][2]int{{1, 3}, {9, 3}}},
		{reflect.TypeFor[outer](), [][2]int{{1, 3}, {5, 3}, {13, 3}, {20, 2}, {28, 4}, {41, 7}}},
		{reflect.TypeFor[[5]float32](), nil},
		{reflect.TypeFor[int16](), nil},
	} {
		l := LayoutOf(test.t)
		if !slices.Equal(l.padding, test.padding) {
			t.Errorf("%v has padding %v, want %v", test.t, l.padding, test.padding)
		}
		mem := bytes.Repeat([]byte{1}, 2*l.size)
		l.ClearPadding(mem)
		cleared := 0
		for _, p := range test.padding {
			cleared += p[1]
		}
		if got := bytes.Count(mem, []byte{0}); got != 2*cleared {
			t.Errorf("%v: %d bytes are cleared, want %d", test.t, got, 2*cleared)
		}
	}
	different := []any{struct{ A, B int32 }{}, struct{ A, B float32 }{}, struct{ A [2]int32 }{}, struct{ A, B, C int32 }{}, [2]float32{}, struct{ A [2]float32 }{}}
	for i, a := range different[:5] {
		for _, b := range different[:i] {
			if x, y := LayoutOf(reflect.TypeOf(a)).Fields, LayoutOf(reflect.TypeOf(b)).Fields; slices.Equal(x, y) {
				t.Errorf("%T and %T have the layout %v", a, b, x)
			}
		}
	}
	if x, y := LayoutOf(reflect.TypeOf(different[4])).Fields, LayoutOf(reflect.TypeOf(different[5])).Fields; !slices.Equal(x, y) {
		t.Errorf("an array and a struct of it have the layouts %v and %v", x, y)
	}
}
