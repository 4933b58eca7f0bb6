package trace

import (
	"slices"
	"testing"
	"time"
)

func at(s int) time.Time { return time.Date(2026, 3, 1, 12, 0, s, 0, time.UTC) }

// reduction is an all-reduce of a world.
func reduction(number uint64, began int) Operation {
	return Operation{
		Comm: "1", Epoch: 1, Op: "all_reduce", Number: number, Type: "float32", Length: 2, Reduce: "sum", Plan: "ring",
		Root: -1, Peer: -1, Began: at(began), Rounds: 2,
	}
}

func ended(o Operation, how string) Operation {
	o.Took, o.End, o.Round = time.Second, how, o.Rounds
	return o
}

func late(o Operation, waiting ...int) Operation {
	o.Took, o.Round = 3*time.Second, 1
	o.SetWaiting(waiting)
	return o
}

func TestLast(t *testing.T) {
	list := []Operation{
		late(reduction(6, 6), 1), late(reduction(7, 7), 1), late(reduction(5, 5), 1),
		ended(reduction(4, 4), OK), ended(reduction(3, 3), OK), ended(reduction(8, 8), OK),
	}
	for most, want := range [][]uint64{{}, {5, 8}, {4, 5, 6, 8}, {3, 4, 5, 6, 7, 8}, {3, 4, 5, 6, 7, 8}} {
		got := []uint64{}
		for _, o := range Last(slices.Clone(list), most) {
			got = append(got, o.Number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of each at most %d: %v, want %v", most, got, want)
		}
	}
}

func TestSetWaiting(t *testing.T) {
	var o Operation
	o.SetWaiting(make([]int, WaitingMax+3))
	if len(o.Waiting) != WaitingMax || o.More != 3 {
		t.Errorf("%d named and %d more, want %d and 3", len(o.Waiting), o.More, WaitingMax)
	}
}
