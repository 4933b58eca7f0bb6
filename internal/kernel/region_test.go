package kernel

import (
	"slices"
	"testing"
)

func TestRegion(t *testing.T) {
	type pair struct{ A, B int16 }
	slice, grown, number, none := []uint8{1, 2}, []uint16{3}, int32(4), []int64(nil)
	for name, test := range map[string]struct {
		state any
		grows bool
		bytes int
	}{
		"a slice":                    {slice, false, 2},
		"a slice of structs":         {[]pair{{1, 2}, {3, 4}}, false, 8},
		"no slice":                   {none, false, 0},
		"a pointer to a slice":       {&grown, true, 2},
		"a pointer to no slice":      {&none, true, 0},
		"a pointer to a number":      {&number, false, 4},
		"a pointer to a struct":      {&pair{5, 6}, false, 4},
		"a pointer to an array":      {&[3]float64{}, false, 24},
		"a pointer to a named slice": {new(named), true, 0},
	} {
		r, ok := RegionOf(test.state)
		if !ok || r.Grows() != test.grows || len(r.Bytes()) != test.bytes {
			t.Errorf("%s: got %v, grows %v, %d bytes, want %v, %d", name, ok, r.Grows(), len(r.Bytes()), test.grows, test.bytes)
		}
	}
	for name, state := range map[string]any{
		"nothing": nil, "a number": 3, "a string": "x", "a slice of strings": []string{"x"}, "a nil pointer": (*int)(nil),
		"a pointer to a map": new(map[int]int), "a pointer to a slice of pointers": new([]*int), "a struct with a pointer": &struct{ p *int }{},
	} {
		if _, ok := RegionOf(state); ok {
			t.Errorf("%s has a region", name)
		}
	}
}

type named []float32

// TestRegionIsWrittenThrough: the bytes are the memory of the value.
func TestRegionIsWrittenThrough(t *testing.T) {
	grown, number := []uint16{3}, int32(4)
	r, _ := RegionOf(&grown)
	if err := r.Set([]byte{1, 1, 2, 2}); err != nil || !slices.Equal(grown, []uint16{0x101, 0x202}) {
		t.Errorf("got %v, %v", grown, err)
	}
	if err := r.Set([]byte{1, 1, 2}); err == nil || !slices.Equal(grown, []uint16{0x101, 0x202}) {
		t.Errorf("of half an element: got %v, %v", grown, err)
	}
	n, _ := RegionOf(&number)
	if err := n.Set(make([]byte, 4)); err != nil || number != 0 {
		t.Errorf("got %d, %v, want 0", number, err)
	}
	if err := n.Set(make([]byte, 5)); err == nil {
		t.Error("Set accepts more bytes than the number has")
	}
}
