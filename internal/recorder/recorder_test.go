package recorder

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/trace"
)

func at(s int) time.Time { return time.Date(2026, 3, 1, 12, 0, s, 0, time.UTC) }

// reduction returns a running all-reduce of the world.
func reduction(seq uint64, start int) trace.Operation {
	return trace.Operation{
		Comm: "1", Epoch: 1, Op: "all_reduce", Seq: seq, Type: "float32", Length: 2, Reduce: "sum", Plan: "ring",
		Root: -1, Peer: -1, Start: at(start), Rounds: 2,
	}
}

func ended(o trace.Operation, outcome string) trace.Operation {
	o.Duration, o.Outcome, o.Round = time.Second, outcome, o.Rounds
	return o
}

func late(o trace.Operation, waiting ...int) trace.Operation {
	o.Duration, o.Round, o.Waiting = 3*time.Second, 1, waiting
	return o
}

func call(peer int, fn string) trace.Operation {
	return trace.Operation{Comm: "1", Epoch: 1, Op: "call", Function: fn, Root: -1, Peer: peer, Bytes: 10}
}

func snapshot(operations ...trace.Operation) trace.Snapshot {
	return trace.Snapshot{Node: "abcd", Name: "train", Rank: 1, Size: 4, Epoch: 1, Time: at(10), Operations: operations}
}

// of returns the snapshot of a rank in a world of four.
func of(rank int, operations ...trace.Operation) trace.Snapshot {
	return trace.Snapshot{Node: strings.Repeat(string(rune('a'+rank)), 32), Rank: rank, Size: 4, Epoch: 1, Time: at(10), Operations: operations}
}

func TestLast(t *testing.T) {
	list := []trace.Operation{
		late(reduction(6, 6), 1), late(reduction(7, 7), 1), late(reduction(5, 5), 1),
		ended(reduction(4, 4), trace.OK), ended(reduction(3, 3), trace.OK), ended(reduction(8, 8), trace.OK),
	}
	for limit, want := range [][]uint64{{}, {5, 8}, {4, 5, 6, 8}, {3, 4, 5, 6, 7, 8}, {3, 4, 5, 6, 7, 8}} {
		got := []uint64{}
		for _, o := range Last(slices.Clone(list), limit) {
			got = append(got, o.Seq)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of each at most %d: %v, want %v", limit, got, want)
		}
	}
}

func TestSetWaiting(t *testing.T) {
	var o trace.Operation
	SetWaiting(&o, make([]int, WaitingMax+3))
	if len(o.Waiting) != WaitingMax || o.WaitingMore != 3 {
		t.Errorf("%d named and %d more, want %d and 3", len(o.Waiting), o.WaitingMore, WaitingMax)
	}
}
