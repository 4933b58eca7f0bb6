package plan

import (
	"strings"
	"testing"
)

// Every plan that can be in place is correct if all or some ranks use it in place.
func TestInPlaceIsRight(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		for size := 1; size <= inPlaceSize; size++ {
			for _, root := range roots(c, a, size) {
				checkInPlace(t, c, a, size, root, func(int) bool { return true })
				checkInPlace(t, c, a, size, root, func(rank int) bool { return rank%3 != 1 })
			}
		}
	})
}

func checkInPlace(t *testing.T, c Collective, a Algorithm, size, root int, wants func(rank int) bool) {
	t.Helper()
	plans, inPlace, found := a.Plans(size, root), make([]bool, size), false
	for rank := range plans {
		if CanBeInPlace(c, rank, root) && wants(rank) {
			inPlace[rank], found = true, true
			plans[rank] = InPlace(plans[rank])
		}
	}
	if !found {
		return
	}
	if err := CheckInPlace(c, root, plans, inPlace); err != nil {
		t.Fatal(err)
	}
}

// The proof finds errors of InPlace: a plan that reads its input after the result has
// overwritten it, and one that writes another block.
func TestInPlaceFaults(t *testing.T) {
	late := Plan{Chunks: 2, Rounds: []Round{
		{recv(one(Data, 0), 1)},
		{send(one(Data, 0), 1)},
	}}
	partner := Plan{Chunks: 2, Rounds: []Round{
		{send(one(Input, 0), 0)},
		{recv(one(Data, 0), 0)},
	}}
	for name, test := range map[string]struct {
		c     Collective
		plans []Plan
		want  string
	}{
		"the own block is overwritten": {AllGather, []Plan{late, InPlace(partner)}, "rank 1 holds nothing yet"},
		"another block is written":     {ReduceScatter, []Plan{{Chunks: 2, Rounds: []Round{{recv(one(Data, 1), 1)}}}, partner}, "may not be written by rank 0"},
	} {
		err := CheckInPlace(test.c, 0, test.plans, []bool{true, true})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, test.want)
		}
	}
}
