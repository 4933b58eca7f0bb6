package shmexec

import (
	"math/rand/v2"
	"testing"
)

// TestAllocate: the payloads of the last pieces do not overlap, lie within the area, and use all of
// it.
func TestAllocate(t *testing.T) {
	const pieceBytes = 1 << 10
	memories, _ := newMemories(1, pieceBytes)
	m := memories[0]
	var last [Depth + 1][2]int
	end := 0
	for i := range 100_000 {
		room := shortMax + 1 + rand.IntN(pieceBytes-shortMax)
		m.allocate(room)
		if m.body%line != 0 || m.body < ringAt || m.body+room > AreaSize(pieceBytes) {
			t.Fatalf("%d bytes at %d", room, m.body)
		}
		last[i%len(last)] = [2]int{m.body, m.body + room}
		for k, other := range last {
			if k != i%len(last) && m.body < other[1] && other[0] < m.body+room {
				t.Fatalf("%d bytes at %d, where %v lies", room, m.body, other)
			}
		}
		end = max(end, m.body+room)
	}
	if end < AreaSize(pieceBytes)-pieceBytes {
		t.Errorf("payloads end at %d of %d bytes", end, AreaSize(pieceBytes))
	}
}

func TestPieceBytes(t *testing.T) {
	for _, n := range []int{0, 64, 1 << 10, 256 << 10} {
		if got := PieceBytes(AreaSize(n)); got != n {
			t.Errorf("%d bytes: room for %d", n, got)
		}
	}
	if got := PieceBytes(10); got != 0 {
		t.Errorf("an area of 10 bytes has room for %d", got)
	}
}
