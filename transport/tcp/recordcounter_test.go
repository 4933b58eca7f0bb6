package tcp

import (
	"slices"
	"testing"
)

// TestRecordCounter checks that records are counted for every division of the stream.
func TestRecordCounter(t *testing.T) {
	var stream []byte
	for _, n := range []int{0, 1, 255, 256, 16401} {
		stream = append(stream, 23, 3, 3, byte(n>>8), byte(n))
		stream = append(stream, make([]byte, n)...)
	}
	for _, size := range []int{1, 2, 3, 5, 6, 100, len(stream)} {
		var r recordCounter
		for piece := range slices.Chunk(stream[:len(stream)-1], size) {
			r.count(piece)
		}
		if r.complete != 4 {
			t.Errorf("pieces of %d: %d records before the last byte, want 4", size, r.complete)
		}
		r.count(stream[len(stream)-1:])
		if r.complete != 5 {
			t.Errorf("pieces of %d: %d records, want 5", size, r.complete)
		}
	}
}
