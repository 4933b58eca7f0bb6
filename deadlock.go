package nexar

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// ErrDeadlock says that ranks wait for each other; see [DeadlockError].
var ErrDeadlock = errors.New("deadlock")

// A DeadlockError says that ranks wait for each other: none of their calls can end, nothing is in
// flight between them, and no goroutine of their programs has begun another call for
// [Config].DeadlockTimeout. It is an [ErrDeadlock]. A blocking [Send] of a rank to itself that no receive takes
// gets it as well, after a warning in the log within a second or two, and the communicator goes on.
//
// Otherwise, every call in progress on a communicator of the deadlock gets the error, on all its ranks; the
// communicators have ended. Ranks are those of the world, since a deadlock may run through several
// communicators.
type DeadlockError struct {
	// Ranks is the number of ranks that wait for each other.
	Ranks int
	// Waits has a call of each rank of the deadlock, at most ten of them. The first rank is the
	// lowest, and each of the others follows one that waits for it.
	Waits []DeadlockWait
	// Sentence names the ranks that wait for each other, and their calls: "Ranks 0–6 wait in barrier #12 for rank 7, which has been in recv
	// from rank 0 for 14 s: a deadlock".
	Sentence string
}

// A DeadlockWait is a call that waits for a rank that waits as well.
type DeadlockWait struct {
	Rank     int           // that waits
	WaitsFor int           // a rank of the deadlock that the call needs
	Op       string        // "send", "recv", "probe", or the name of a collective
	Text     string        // the call with its arguments: "send to rank 1, tag 7, 1024 × float32"
	Comm     string        // the communicator, as [Node.Trace] names it
	Time     time.Duration // without progress
	Site     string        // where the program has called it: "train/main.go:42"; empty if unknown
}

func (e *DeadlockError) Error() string {
	sends := len(e.Waits) > 0 && !slices.ContainsFunc(e.Waits, func(w DeadlockWait) bool { return w.Op != "send" })
	switch {
	case sends && e.Ranks == 1:
		return e.Sentence + ": begin the receive before, or make the send a StartSend"
	case e.Ranks == 1 && e.Waits[0].Op == collective.OpName(collective.LeaveOp):
		return e.Sentence + ": on another goroutine, range over Epochs and call Reconfigure after each step"
	case sends:
		return e.Sentence + ": make one of them a StartSend, or use Exchange"
	}
	return e.Sentence
}

// Is reports that e is an [ErrDeadlock].
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// noReceive is the error of a blocking send of this rank to itself, for which no receive has begun.
func (c *Comm) noReceive(waited time.Duration, size int, typ uint8, tag Tag) error {
	return c.waitsForItself(&wire.Wait{Kind: wire.WaitSend, For: uint64(waited), Tag: int64(tag), Call: wire.Call{Type: typ, Count: uint64(size)}})
}

// waitsForItself is the error of a call that waits for another goroutine of this rank.
func (c *Comm) waitsForItself(w *wire.Wait) *DeadlockError {
	rank, _ := c.impl.View.View.Rank(c.impl.Nodes[c.impl.Rank].ID)
	w.Rank, w.Peers, w.Call.Comm = uint32(rank), []wire.WaitPeer{{Rank: uint32(rank)}}, c.comm.ID()
	return deadlockError(&engine.DeadlockError{Ranks: 1, Waits: []wire.Wait{*w}})
}

// deadlockError makes the error of a deadlock that the engine has found.
func deadlockError(e *engine.DeadlockError) *DeadlockError {
	d := &DeadlockError{Ranks: e.Ranks}
	all := trace.Cluster{Formed: true}
	for i := range e.Waits {
		w := &e.Waits[i]
		o := collective.WaitOperation(w)
		wait := DeadlockWait{Rank: int(w.Rank), WaitsFor: int(w.Rank), Op: o.Op, Text: o.What(), Comm: o.Comm, Time: o.Duration, Site: o.Site}
		if len(w.Peers) > 0 {
			wait.WaitsFor = int(w.Peers[0].Rank)
		}
		d.Waits = append(d.Waits, wait)
		o.Waiting = []int{wait.WaitsFor}
		all.Joined = max(all.Joined, wait.Rank+1, wait.WaitsFor+1)
		all.Nodes = append(all.Nodes, trace.Node{Rank: wait.Rank, Snapshot: &trace.Snapshot{Rank: wait.Rank, Size: math.MaxInt32, Operations: []trace.Operation{o}}})
	}
	if e.Ranks > len(d.Waits) { // About finds a deadlock in a closed circle only, and the last rank waits for one that is left out.
		for i := range all.Nodes {
			if o := &all.Nodes[i].Snapshot.Operations[0]; !slices.ContainsFunc(d.Waits, func(w DeadlockWait) bool { return w.Rank == o.Waiting[0] }) {
				o.Waiting[0] = d.Waits[0].Rank
			}
		}
	}
	d.Sentence = all.About(d.Waits[0].Rank)
	if e.Ranks > len(d.Waits) {
		d.Sentence += fmt.Sprintf(" of %d ranks, of which %d are known here", e.Ranks, len(d.Waits))
	}
	return d
}
