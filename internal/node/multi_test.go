package node

import (
	"math"
	"testing"
)

// TestJoiningMax: the places of a seed grow with the world up to a quarter of the files of the process.
func TestJoiningMax(t *testing.T) {
	for _, test := range []struct {
		nodes int
		files uint64
		want  int
	}{
		{1, 1 << 20, 512}, {256, 1 << 20, 512}, {257, 1 << 20, 514}, {10_000, 1 << 20, 20_000},
		{10_000, 1024, 512}, {10_000, 4096, 1024}, {1 << 30, 1 << 20, 1 << 18},
		{10_000, 0, 20_000}, {10_000, math.MaxUint64, 20_000}, {math.MaxInt, 1 << 20, 1 << 18},
	} {
		if got := joiningMax(test.nodes, test.files); got != test.want {
			t.Errorf("%d nodes, %d files: %d places, want %d", test.nodes, test.files, got, test.want)
		}
	}
}
