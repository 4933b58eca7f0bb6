// Package trace is the flight recorder of a node: what its last operations
// were, which of them are under way, how far they have come, and whom they wait
// for.
//
// Most callers get a Snapshot from others, who keep the operations: the engine its
// collectives and messages, in Rings beside the locks that it holds anyway, and a
// Log whatever has no such place. A Snapshot is written for people by WriteTo, for
// programs as JSON, and by Encode in so many bytes at the most. Table puts the
// Snapshots of all ranks together, and says who is late; a Cluster also has the nodes
// that there is no Snapshot of.
//
// A Snapshot is a copy: it belongs to whoever asked for it. A Clock and a Log may be
// used by several goroutines, a Ring by one at a time.
package trace

import (
	"slices"
	"strconv"
	"time"
)

// Length is how many operations of each sort are remembered.
const Length = 256

// WaitingMax is how many of the ranks that an operation waits for are named.
const WaitingMax = 64

// A Comm is what a communicator is, whose operations are recorded.
type Comm struct {
	Epoch uint64
	Ranks []int  // of the view, by rank
	Use   string // what it is for, if not for what users call
}

// A Snapshot is what a node has done of late, and is doing. All ranks in it are
// those of the world, also where an operation is one of a smaller communicator.
type Snapshot struct {
	Node       string      `json:"node"`           // its NodeID
	Name       string      `json:"name,omitempty"` // of its process, for people
	Rank       int         `json:"rank"`           // in the world of this epoch
	Size       int         `json:"size"`           // of that world
	Epoch      uint64      `json:"epoch"`
	Time       time.Time   `json:"time"`       // when it was made, by the clock of the node
	Operations []Operation `json:"operations"` // in the order in which they began
	Links      []Link      `json:"links,omitempty"`
}

// A Link is the connection to another rank, and the bytes that went over it so far.
// Bytes that one side has sent and the other has not received are in flight.
type Link struct {
	Rank     int    `json:"rank"`
	Over     string `json:"over,omitempty"` // the transport that carries payloads
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// An Operation is a collective, a message or a call of a function, under way or
// ended. Times of short operations that go through shared memory are accurate to
// 20 ms only: to look at the clock takes a part of their time that counts.
type Operation struct {
	Comm     string        `json:"comm"`            // the number of its communicator; "1" is the first world
	Epoch    uint64        `json:"epoch"`           // of the view that this belongs to
	Use      string        `json:"use,omitempty"`   // what this is for, if not for what users call
	Op       string        `json:"op"`              // "all_reduce", "send", "recv", "probe" or "call"
	Number   uint64        `json:"number"`          // the how many-th collective of the communicator; 0 for others
	Type     string        `json:"type,omitempty"`  // of the elements
	Length   int           `json:"length"`          // elements per rank, or of all blocks; 0 for others
	Counts   uint32        `json:"counts,omitzero"` // a digest of the lengths of blocks that are not alike
	Reduce   string        `json:"reduce,omitempty"`
	Plan     string        `json:"plan,omitempty"`     // the algorithm, and how it is carried out
	Function string        `json:"function,omitempty"` // that a call is of
	Root     int           `json:"-"`                  // -1 if there is none
	Peer     int           `json:"-"`                  // the other rank of a message or call; -1 is any, or none
	Tag      int64         `json:"tag,omitzero"`       // of a message; -1 is any
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"-"` // until it ended, or by now

	// End is empty for an operation under way, OK for one that has ended well, and
	// otherwise why it has failed.
	End string `json:"end,omitempty"`
	// Round is the first round of the plan that has not ended, or the first piece of
	// the vector that has not gone through shared memory, and Rounds how many there
	// are. Both are 0 for others than collectives.
	Round  int `json:"round,omitzero"`
	Rounds int `json:"rounds,omitzero"`
	// Bytes is how much this rank has sent and received for it by now, and in
	// shared memory, where nothing is sent, how much of its vector is done.
	Bytes int64 `json:"bytes"`
	// Waiting are the ranks that an operation under way waits for, or that one which
	// has failed was waiting for, as many as are named; there are More.
	Waiting []int `json:"waiting,omitempty"`
	More    int   `json:"more,omitzero"`
}

// How operations end.
const (
	OK         = "ok"
	PeerFailed = "peer failed"
	PeerLeft   = "peer left"
	Mismatch   = "mismatch"
	Timeout    = "timeout"
	Cancelled  = "cancelled"
	Closed     = "closed"
	Revoked    = "revoked" // because of an operation of another rank
	Refused    = "refused" // a message that does not fit
	Failed     = "failed"  // for another reason
)

// CommName is how the number of a communicator is written.
func CommName(id uint64) string { return strconv.FormatUint(id, 16) }

// UnderWay reports whether the operation has not ended.
func (o *Operation) UnderWay() bool { return o.End == "" }

// SetWaiting says which ranks the operation waits for.
func (o *Operation) SetWaiting(ranks []int) {
	n := min(len(ranks), WaitingMax)
	o.Waiting, o.More = ranks[:n:n], len(ranks)-n
}

// Last are the operations in the order in which they began: of those that have
// ended the last, and of those under way the first, as those after them may wait
// for nothing else, each at most so many.
func Last(list []Operation, most int) []Operation {
	slices.SortStableFunc(list, func(a, b Operation) int { return a.Began.Compare(b.Began) })
	return keep(list, most, most)
}

// keep drops all but the first so many under way and the last that have ended.
func keep(list []Operation, underWay, ended int) []Operation {
	after := 0 // operations that have ended
	for i := range list {
		after += 1 - sign(list[i].UnderWay())
	}
	return slices.DeleteFunc(list, func(o Operation) bool {
		if o.UnderWay() {
			underWay--
			return underWay < 0
		}
		after--
		return after >= ended
	})
}
