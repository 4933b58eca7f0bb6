package nexar

import (
	"errors"
	"fmt"
	"math"
	"strings"
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
	parts := make([]string, len(e.Waits))
	sends := len(e.Waits) > 0
	for i, w := range e.Waits {
		parts[i] = fmt.Sprintf("rank %d waits in %s", w.Rank, w.Text)
		switch named := fmt.Sprintf(" rank %d,", w.WaitsFor); {
		case strings.Contains(w.Text+",", named):
		case w.WaitsFor == w.Rank:
			parts[i] += " for itself"
		default:
			parts[i] += fmt.Sprintf(" for rank %d", w.WaitsFor)
		}
		if sends = sends && w.Op == "send"; w.Site != "" {
			parts[i] += " at " + w.Site
		}
	}
	if more := e.Ranks - len(e.Waits); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d others", more)) //nolint:makezero // parts has a length before the loop that fills it
	}
	text := fmt.Sprintf("%v: %s", ErrDeadlock, strings.Join(parts, "; "))
	switch {
	case sends && e.Ranks == 1:
		text += ", and has begun no receive for it: begin the receive before, or make the send a StartSend"
	case e.Ranks == 1 && e.Waits[0].Op == collective.OpName(collective.LeaveOp):
		text += ": on another goroutine, range over Epochs and call Reconfigure after each step"
	case sends:
		text += ": make one of them a StartSend, or use Exchange"
	}
	return text
}

// Is reports that e is an [ErrDeadlock].
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// noReceive is the error of a blocking send of this rank to itself, for which no receive has begun.
func (c *Comm) noReceive(size int, typ uint8, tag Tag) error {
	return c.waitsForItself(&wire.Wait{Kind: wire.WaitSend, Tag: int64(tag), Call: wire.Call{Type: typ, Count: uint64(size)}})
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
	d.Sentence = all.About(d.Waits[0].Rank)
	if e.Ranks > len(d.Waits) {
		d.Sentence += fmt.Sprintf(", of %d ranks", e.Ranks)
	}
	return d
}
