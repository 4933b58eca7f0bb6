//race:none it starts no goroutine

package trace

import "time"

func at(s int) time.Time { return time.Date(2026, 3, 1, 12, 0, s, 0, time.UTC) }

// reduction is a running all-reduce of the world.
func reduction(seq uint64, start int) Operation {
	return Operation{
		Comm: "1", Epoch: 1, Op: "all_reduce", Seq: seq, Type: "float32", Length: 2, Reduce: "sum", Plan: "ring",
		Root: -1, Peer: -1, Start: at(start), Rounds: 2,
	}
}

func ended(o Operation, outcome string) Operation {
	o.Duration, o.Outcome, o.Round = time.Second, outcome, o.Rounds
	return o
}

func late(o Operation, waiting ...int) Operation {
	o.Duration, o.Round, o.Waiting = 3*time.Second, 1, waiting
	return o
}

func call(peer int, fn string) Operation {
	return Operation{Comm: "1", Epoch: 1, Op: "call", Function: fn, Root: -1, Peer: peer, Bytes: 10}
}

func snapshot(operations ...Operation) Snapshot {
	return Snapshot{Node: "abcd", Name: "train", Rank: 1, Size: 4, Epoch: 1, Time: at(10), Operations: operations}
}

// receive is a running receive from a rank, or from any rank if it is -1.
func receive(peer int, d time.Duration) Operation {
	o := Operation{Comm: "1", Epoch: 1, Op: "recv", Root: -1, Peer: peer, Tag: 5, Start: at(10).Add(-d), Duration: d}
	if peer >= 0 {
		o.Waiting = []int{peer}
	}
	return o
}
