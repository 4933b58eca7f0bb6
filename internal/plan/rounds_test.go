package plan

import (
	"fmt"
	"reflect"
	"testing"
)

// forEachRounds runs f for every algorithm that computes plans round by round.
func forEachRounds(t *testing.T, f func(t *testing.T, a Algorithm)) {
	made := 0
	forEach(t, func(t *testing.T, _ Collective, a Algorithm) {
		if a.Rounds != nil {
			made++
			f(t, a)
		}
	})
	if made == 0 {
		t.Error("no algorithm computes its plans round by round")
	}
}

// TestRoundsArePlans: the rounds of a rank have the moves of its plan, in any order of asking for
// them.
func TestRoundsArePlans(t *testing.T) {
	forEachRounds(t, func(t *testing.T, a Algorithm) {
		for size := 1; size <= 33; size++ {
			r := a.Rounds(size, 0)
			for rank, want := range a.Plans(size, 0) {
				if got := r.Plan(rank); !reflect.DeepEqual(got, want) {
					t.Fatalf("size %d, rank %d: rounds give %v, the plan is %v", size, rank, got, want)
				}
				// Rounds without moves are no rounds of the plan.
				k := len(want.Rounds)
				for i := r.Len(rank) - 1; i >= 0; i-- {
					round := r.Append(nil, rank, i)
					if len(round) == 0 {
						continue
					}
					if k--; k < 0 || !reflect.DeepEqual(round, want.Rounds[k]) {
						t.Fatalf("size %d, rank %d: round %d is %v, which is not round %d of %v", size, rank, i, round, k, want)
					}
				}
			}
		}
	})
}

// TestAlikeRounds: within a section of alike rounds every rank exchanges as many chunks with the same
// ranks, and all ranks have as many rounds.
func TestAlikeRounds(t *testing.T) {
	rings := 0
	forEachRounds(t, func(t *testing.T, a Algorithm) {
		for size := 2; size <= 17; size++ {
			r := a.Rounds(size, 0)
			if r.Alike == 0 {
				return
			}
			rings++
			for rank := range size {
				n := r.Len(rank)
				if n != r.Len(0) || n%r.Alike != 0 {
					t.Fatalf("size %d, rank %d: %d rounds in %d sections, rank 0 has %d", size, rank, n, r.Alike, r.Len(0))
				}
				section := n / r.Alike
				for k := range n {
					if got, want := exchanges(r.Append(nil, rank, k)), exchanges(r.Append(nil, rank, k/section*section)); got != want {
						t.Fatalf("size %d, rank %d: round %d exchanges %s, the first of its section %s", size, rank, k, got, want)
					}
				}
			}
		}
	})
	if rings == 0 {
		t.Error("no algorithm has alike rounds")
	}
}

// exchanges describes the messages of a round without their chunks.
func exchanges(round Round) (text string) {
	for _, m := range round {
		if m.messages() {
			text += fmt.Sprintf("%d of %d chunks with rank %d, ", m.Kind, m.A.Len()+m.Dst.Len(), m.Peer)
		}
	}
	return text
}
