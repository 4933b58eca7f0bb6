//race:none it starts no goroutine

package state

import (
	"errors"
	"strings"
	"testing"
)

// note is a Marshaler.
type note struct{ text string }

func (n *note) MarshalBinary() ([]byte, error) { return []byte(n.text), nil }

func (n *note) UnmarshalBinary(b []byte) error { n.text = string(b); return nil }

// TestParts: a list has the parts of its elements, at any depth, and parts are set to encodings of
// others.
func TestParts(t *testing.T) {
	type pair struct{ A, B int32 }
	state := func(x int8, grown []uint16, text string) (s []any, n *note, g *[]uint16) {
		n, g = &note{text}, &grown
		return []any{[]int8{x, x}, &pair{A: int32(x)}, g, n, [][]float64{{1}, nil, {float64(x), 3}}, []*note{n}}, n, g
	}
	source, _, _ := state(7, []uint16{1, 2, 3}, "seven")
	target, n, grown := state(0, nil, "")
	from, err := Parts(source)
	if err != nil {
		t.Fatal(err)
	}
	into, err := Parts(target)
	if err != nil {
		t.Fatal(err)
	}
	const varying = "..vv...v"
	if len(from) != len(varying) || len(into) != len(varying) {
		t.Fatalf("%d and %d parts, want %d", len(from), len(into), len(varying))
	}
	for i := range from {
		if from[i].Varies() != (varying[i] == 'v') {
			t.Errorf("part %d varies: %v", i, from[i].Varies())
		}
		b, err := from[i].Encode()
		if err != nil || !from[i].Varies() && len(b) != into[i].Len() {
			t.Errorf("part %d: %d bytes, %v", i, len(b), err)
		}
		if err := into[i].Set(b); err != nil {
			t.Errorf("part %d: %v", i, err)
		}
	}
	if got := target[0].([]int8); got[1] != 7 || target[1].(*pair).A != 7 || len(*grown) != 3 || n.text != "seven" || target[4].([][]float64)[2][0] != 7 {
		t.Errorf("got %v", target)
	}
}

// TestPartsOfInvalidStates: the error names the element and its type, and lists that contain
// themselves end.
func TestPartsOfInvalidStates(t *testing.T) {
	for want, state := range map[string]any{
		"<nil> is not":               nil,
		"int is not":                 3,
		"element 1: string is":       []any{[]int{1}, "x"},
		"element 0: string is":       []string{"x"},
		"element 1: element 0: *int": []any{[]int{1}, []*int{nil}},
	} {
		if _, err := Parts(state); !errors.Is(err, ErrType) || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	circle := make([]any, 1)
	circle[0] = circle
	if _, err := Parts(circle); !errors.Is(err, ErrType) {
		t.Errorf("a list in itself: got error %v", err)
	}
}
