// Package recorder is the flight recorder of a node: it keeps its last operations, which
// package [github.com/nexar-go/nexar/trace] describes.
//
// The engine keeps collectives and messages in a [Ring], under locks that it holds anyway; a
// [Log] keeps other operations. [Encode] and [Decode] carry a trace.Snapshot to the seed, and
// [AddNode] adds it to a trace.Cluster.
//
// [Count], [CountDuration] and [CountWait] add calls to a counter of a snapshot.
//
// A Clock and a Log may be used by several goroutines, a Ring by one at a time.
//
// The engine keeps the last 256 collectives and the last 256 messages of a communicator, and 32 of a closed one. Nothing is written
// about running operations: a reader asks their executor, which returns the first round that has not ended. The clock is read for long
// operations and every 64th; others use the time of the last tick of the engine, at most 20 ms old. All this takes 1 % of an all-reduce
// of 8 bytes between two ranks that share memory (BenchmarkTrace). A snapshot has at most 32 KiB when encoded. The seed stores answers
// without parsing them; the client parses, and drops those that are not the snapshot of their node.
package recorder

import (
	"slices"
	"strconv"

	"github.com/nexar-go/nexar/trace"
)

// Length is the number of operations of each kind that are kept.
const Length = 256

// WaitingMax bounds trace.Operation.Waiting.
const WaitingMax = 64

// A Comm describes a communicator to the recorder.
type Comm struct {
	Epoch   uint64
	Ranks   []int  // ranks of the world, by rank of the communicator
	Purpose string // of an internal communicator; empty for others
}

// CommName formats the ID of a communicator.
func CommName(id uint64) string { return strconv.FormatUint(id, 16) }

// SetWaiting sets the ranks that the operation waits for.
func SetWaiting(o *trace.Operation, ranks []int) {
	n := min(len(ranks), WaitingMax)
	o.Waiting, o.WaitingMore = ranks[:n:n], len(ranks)-n
}

// Last sorts operations by their start and keeps the last limit completed and the first
// limit running ones: later running ones may only wait for these.
func Last(list []trace.Operation, limit int) []trace.Operation {
	slices.SortStableFunc(list, func(a, b trace.Operation) int { return a.Start.Compare(b.Start) })
	return keep(list, limit, limit)
}

// keep drops all but the first running operations and the last completed ones.
func keep(list []trace.Operation, running, completed int) []trace.Operation {
	after := 0 // completed operations from here on
	for i := range list {
		if !list[i].Running() {
			after++
		}
	}
	return slices.DeleteFunc(list, func(o trace.Operation) bool {
		if o.Running() {
			running--
			return running < 0
		}
		after--
		return after >= completed
	})
}
