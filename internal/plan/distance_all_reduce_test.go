package plan

import (
	"slices"
	"testing"
)

// TestDistanceAllReduce: the plans are proved for many sizes and distances. All messages are between ranks at one of the
// distances, and there are two for each rank but the first.
func TestDistanceAllReduce(t *testing.T) {
	t.Parallel()
	for _, distances := range [][]int{{1}, {1, 2, 3}, {1, 3, 7}, {1, 2, 4, 8, 16, 32}, {1, 2, 4, 8, 32, 64}, {1, 4, 8, 32, 128, 256}} {
		a := DistanceAlgorithm(distances)
		for _, size := range append(ranksUpTo(70), 128, 255, 300, 1023, 1024) {
			if size > 300 && len(distances) < 6 {
				continue
			}
			checkAlgorithm(t, AllReduce, a, size, 0)
			messages := 0
			for rank, p := range a.Plans(size, 0) {
				for _, round := range p.Rounds {
					for i := range round {
						m := &round[i]
						if d := max(m.Peer-rank, rank-m.Peer); !slices.Contains(distances, d) {
							t.Fatalf("%d ranks: rank %d exchanges a message with rank %d, and the distances are %v", size, rank, m.Peer, distances)
						}
						if m.Kind == Send {
							messages++
						}
					}
				}
			}
			if messages != 2*(size-1) {
				t.Errorf("%d ranks, distances %v: %d messages, want %d", size, distances, messages, 2*(size-1))
			}
		}
	}
}

// TestBinomialBarrierMessages: there are two messages for each rank but the first.
func TestBinomialBarrierMessages(t *testing.T) {
	t.Parallel()
	for _, size := range []int{2, 65, 100, 1024} {
		messages := 0
		for rank := range size {
			messages += CostOf(BinomialBarrier(rank, size), 0).Messages
		}
		if want := 2 * 2 * (size - 1); messages != want { // sent and received
			t.Errorf("%d ranks: %d messages are sent and received, want %d", size, messages, want)
		}
	}
}

func ranksUpTo(n int) (list []int) {
	for size := 1; size <= n; size++ {
		list = append(list, size)
	}
	return list
}
