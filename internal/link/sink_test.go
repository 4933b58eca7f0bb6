package link

import (
	"bytes"
	"fmt"
	"testing"
)

// The result of a reduction does not depend on the pieces of the payload, which may be shorter than
// an element.
func TestSinkTakesAnyPieces(t *testing.T) {
	const elem, count = 8, 5
	a := bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, count)
	payload := make([]byte, elem*count)
	want := make([]byte, elem*count)
	for i := range payload {
		payload[i] = byte(i)
		want[i] = byte(i)
		if i%elem == 0 {
			want[i]++
		}
	}
	for first := range 2 * elem {
		for then := 1; then <= 2*elem; then++ {
			for _, left := range []bool{false, true} {
				s := &Sink{Dst: make([]byte, len(payload)), A: a, Elem: elem, Left: left, Reduce: addElements(elem)}
				s.take(payload[:first])
				for rest := payload[first:]; len(rest) > 0; {
					n := min(then, len(rest))
					s.take(rest[:n])
					rest = rest[n:]
				}
				if !bytes.Equal(s.Dst, want) || s.next.at != len(payload) || s.part != 0 {
					t.Fatalf("pieces of %d and then %d bytes, left %t: got %v, want %v", first, then, left, s.Dst, want)
				}
			}
		}
	}
}

// addElements adds bytes and checks that elements are complete.
func addElements(elem int) func(dst, a, b []byte) {
	return func(dst, a, b []byte) {
		if len(dst) == 0 || len(dst)%elem != 0 || len(a) != len(dst) || len(b) != len(dst) {
			panic(fmt.Sprintf("reducing %d, %d and %d bytes", len(dst), len(a), len(b)))
		}
		for i := range dst {
			dst[i] = a[i] + b[i]
		}
	}
}
