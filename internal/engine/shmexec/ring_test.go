package shmexec

import (
	"math/rand/v2"
	"testing"
)

// TestTurn: the payloads of the last pieces lie apart from each other, within the
// area, and come to all of it.
func TestTurn(t *testing.T) {
	const pieceBytes = 1 << 10
	memories, _ := newMemories(1, pieceBytes)
	b := memories[0]
	var last [Depth + 1][2]int
	end := 0
	for i := range 100_000 {
		room := shortMax + 1 + rand.IntN(pieceBytes-shortMax)
		b.allocate(room)
		if b.body%line != 0 || b.body < ringAt || b.body+room > AreaSize(pieceBytes) {
			t.Fatalf("%d bytes at %d", room, b.body)
		}
		last[i%len(last)] = [2]int{b.body, b.body + room}
		for k, other := range last {
			if k != i%len(last) && b.body < other[1] && other[0] < b.body+room {
				t.Fatalf("%d bytes at %d, where %v lies", room, b.body, other)
			}
		}
		end = max(end, b.body+room)
	}
	if end < AreaSize(pieceBytes)-pieceBytes {
		t.Errorf("nothing lies behind %d of %d bytes", end, AreaSize(pieceBytes))
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
